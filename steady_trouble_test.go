package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One look that a busy server refuses says nothing about its memory.
func TestABusyMomentDoesNotBeginTheGuardAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		ps[0].reboot(false)
		time.Sleep(guard - 2*time.Second)
		ps[0].do(func() {
			ps[0].Errs["info"] = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
		})
		time.Sleep(1500 * time.Millisecond)
		ps[0].do(func() { ps[0].Errs["info"] = "" })
		time.Sleep(5 * time.Second)
		require.Equal(t, 5, steadies(ps))
	})
}

// One node forgets; the client that would heal it is cut off from the others at that moment (they are all alive and steady).
func TestAClientThatIsCutOffHealsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "warm")
		high := uint64(time.Now().Add(time.Hour).UnixMicro()) // a client whose proposals were ahead
		for _, x := range ps[:3] {
			x.setCounter("a", high)
		}
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "OOM" })
		}
		l := mustLock(t, p)
		synctest.Wait() // until nodes 4 and 5 have refused too
		fence := l.Fence()
		require.Equal(t, high+1, fence)
		require.NoError(t, l.Unlock(bg))
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "" })
		}
		ps[0].reboot(false)
		time.Sleep(guard - time.Second)
		for _, x := range ps[1:] {
			x.do(func() { x.refuse = true })
			x.cut()
		}
		time.Sleep(3 * time.Second)
		require.NoError(t, p.Close())
		for _, x := range ps[3:] {
			x.restart()
		}
		require.Equal(t, 4, steadies(ps), "it cannot read the counters of a majority")
		for _, x := range ps[1:3] {
			x.restart()
		}
		rival := guarded(t, ps)
		next, err := rival.Lock(bg, "a")
		require.NoError(t, err)
		require.Greater(t, next.Fence(), fence)
	})
}

// A test's option that was left in one service.
func TestAPoolWithoutAGuardIsRefusedWhereOthersHaveOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps, WithLease(20*time.Second))
		lockAndUnlock(t, p, "warm")
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "OOM" })
		}
		l := mustLock(t, p)
		synctest.Wait() // until nodes 4 and 5 have refused too
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "" })
		}
		ps[2].reboot(false)
		_, err := testPool(t, ps).TryLock(bg, "a")
		require.True(t, l.Valid())
		require.ErrorContains(t, err, "n=5 k=3 guard=30000")
		require.ErrorContains(t, err, "WithRestartGuard(0)")
	})
}

// A node that waits for the counters of a slow one is not looked at without a pause.
func TestANodeThatIsHealedIsNotAskedWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.delay = 100 * time.Microsecond
		}
		p := guarded(t, ps)
		l := mustLock(t, p)
		ps[4].do(func() { ps[4].refuse = true })
		ps[4].cut()
		ps[0].reboot(false)
		time.Sleep(guardOver - 100*time.Millisecond)
		ps[3].do(func() { ps[3].delay = 200 * time.Millisecond })
		before := ps[0].count("info")
		time.Sleep(600 * time.Millisecond)
		require.True(t, l.Valid())
		require.Less(t, ps[0].count("info")-before, 20)
	})
}

// A server whose compare-and-set never agrees with what it shows: a proxy that reads from a stale copy.
func TestAMarkerThatNeverTakesIsTriedSlowly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.delay = time.Millisecond
		}
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		ps[0].do(func() { ps[0].Raw["mark"] = "$3\r\nold\r\n" })
		ps[0].reboot(true)
		infos := ps[0].count("info")
		for range 100 {
			lockAndUnlock(t, p, "a")
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, ps[0].count("info")-infos, 100)
	})
}

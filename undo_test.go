package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

func TestAFailedRoundOfAFrozenMajorityLeavesNothing(t *testing.T) { // FAULTS 7
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		const ttl = 4 * time.Second
		p := testPool(t, ps, WithTTL(ttl))
		warm(t, p)
		for _, x := range ps[:3] {
			x.freeze()
		}
		start := time.Now()
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.Equal(t, 250*time.Millisecond, time.Since(start))

		time.Sleep(ttl + ttl/2)
		for _, x := range ps[:3] {
			x.thaw()
		}
		time.Sleep(3 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestARequestThatLandsLateIsUndone(t *testing.T) { // FAULTS 11
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		warm(t, p)
		for _, x := range ps[:3] {
			x.do(func() { x.delay = 300 * time.Millisecond }) // past the node timeout, before the latest second
		}
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		time.Sleep(100 * time.Millisecond)
		require.NotZero(t, leftovers(ps), "it did land")
		for _, x := range ps[:3] {
			x.do(func() { x.delay = 0 })
		}
		time.Sleep(250*time.Millisecond + 3*time.Second)
		require.Zero(t, leftovers(ps))
		require.Zero(t, undoPending(p))
	})
}

func TestARequestThatLandsAfterItsSecondWritesNothing(t *testing.T) { // FAULTS 7, 53
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 1)
		p := testPool(t, ps)
		warm(t, p)
		ps[0].freeze()
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		_ = p.Close() // nobody is left to undo anything
		time.Sleep(4 * time.Second)
		ps[0].thaw()
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestALostReplyToTheReleaseIsAskedAgain(t *testing.T) { // FAULTS 15
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		l := mustLock(t, p)
		synctest.Wait()
		for _, x := range ps {
			x.do(func() { x.Drop = "release" })
		}
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, l.Unlock(bg))
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestALoserLeavesNothingOnASlowThirdNode(t *testing.T) { // FAULTS 13
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		for _, x := range ps[:2] {
			x.Keys["lock:a"] = model.Value{S: "another's"}
		}
		p := testPool(t, ps)
		_, _ = p.TryLock(bg, "b") // connects
		synctest.Wait()
		ps[2].do(func() { ps[2].delay = 100 * time.Millisecond })
		start := time.Now()
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrHeld)
		require.Less(t, time.Since(start), 100*time.Millisecond)
		require.Contains(t, err.Error(), "without expiry")
		time.Sleep(300 * time.Millisecond)
		require.Empty(t, ps[2].owner("lock:a"))
		require.Equal(t, "another's", ps[0].owner("lock:a"))
	})
}

func TestUnlockIsBoundedAndFinishedLater(t *testing.T) { // FAULTS 14
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l := mustLock(t, p)
		synctest.Wait()
		for _, x := range ps {
			x.freeze()
		}
		start := time.Now()
		err := l.Unlock(bg)
		require.ErrorIs(t, err, ErrNoQuorum)
		require.Equal(t, 250*time.Millisecond, time.Since(start))
		require.Len(t, nodeReasons(t, err), 5)
		require.ErrorIs(t, l.Err(), ErrUnlocked)

		time.Sleep(5 * time.Second)
		for _, x := range ps {
			x.thaw()
		}
		time.Sleep(time.Second)
		require.Zero(t, leftovers(ps))
		require.NoError(t, l.Unlock(bg), "a failed Unlock asks again")
	})
}

func TestUnlockWithADeadCtx(t *testing.T) { // FAULTS 17
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		ctx, cancel := context.WithCancel(bg)
		l, err := p.Lock(ctx, "a")
		require.NoError(t, err)
		cancel()
		require.NoError(t, l.Context().Err(), "the lock does not end with the call's ctx")
		require.NoError(t, l.Unlock(ctx))
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

// An Extend refills a node that has no vote; what is asked of it later, and refused, does not take the key away.
func TestALeaseIsReleasedOnANodeThatHasNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		warm(t, p)
		ps[0].reboot(true)
		lockAndUnlock(t, p, "b") // has it connected again
		synctest.Wait()
		l := mustLock(t, p, WithLease(20*time.Second))
		require.NoError(t, l.Extend(bg))
		synctest.Wait()
		require.Equal(t, l.Token(), ps[0].owner("lock:a"), "it is refilled")
		time.Sleep(time.Second)
		require.NoError(t, l.Unlock(bg))
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestOneOfTwoKeysThatIsAnothersLeavesNotTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l, err := p.MultiLock(bg, []string{"a", "b"})
		require.NoError(t, err)
		synctest.Wait()
		ps[0].do(func() { ps[0].Keys["lock:b"] = model.Value{S: "another's"} })
		require.NoError(t, l.Extend(bg))
		synctest.Wait()
		require.NoError(t, l.Unlock(bg))
		synctest.Wait()
		require.Equal(t, 1, leftovers(ps))
		require.Equal(t, "another's", ps[0].owner("lock:b"))
	})
}

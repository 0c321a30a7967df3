package redlock

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

const guard = 30 * time.Second // the default

// guardOver is when a node whose nonce is written now has its vote again: the nonce was watched for long enough, and
// nodes that became steady at the same time have told each other their counters.
const guardOver = guard + guard/100 + time.Second

// guarded is a pool that looks after its nodes' memory. The peers have been up for a day.
func guarded(t *testing.T, ps []*peer, opts ...Option) *Pool {
	return testPool(t, ps, append([]Option{WithRestartGuard(guard)}, opts...)...)
}

// steadies counts the peers whose marker says steady, in their present run.
func steadies(ps []*peer) int {
	n := 0
	for _, p := range ps {
		if m := parseMarker(p.marker()); m.state == steadyWord && m.run == p.Run {
			n++
		}
	}
	return n
}

// votes says which nodes grant an acquire of a resource of its own.
func grants(t *testing.T, p *Pool, resource string) []bool {
	t.Helper()
	l, err := p.TryLock(bg, resource)
	granted := make([]bool, len(p.quorum.nodes))
	for i := range granted {
		granted[i] = true
	}
	if err != nil {
		var q *QuorumError
		require.ErrorAs(t, err, &q)
		for _, n := range q.Nodes {
			for i := range granted {
				granted[i] = granted[i] && p.quorum.nodes[i].name != n.Node
			}
		}
		return granted
	}
	time.Sleep(10 * time.Millisecond) // for the last votes
	l.h.mu.Lock()
	for i, s := range l.h.nodes {
		granted[i] = s.has
	}
	l.h.mu.Unlock()
	require.NoError(t, l.Unlock(bg))
	time.Sleep(10 * time.Millisecond)
	return granted
}

func TestFirstUseOfServersThatRunForLongDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		warnings := make(chan Event, 10)
		p := guarded(t, ps, WithObserver(Observer{NodeSteady: func(ev Event) { warnings <- ev }}))
		began := time.Now()
		l, err := p.TryLock(bg, "a")
		require.NoError(t, err)
		require.Less(t, time.Since(began), 50*time.Millisecond)
		time.Sleep(time.Millisecond)
		require.Equal(t, 5, steadies(ps))
		require.NoError(t, l.Unlock(bg))
		time.Sleep(time.Second)
		require.ErrorContains(t, (<-warnings).Err, "first use")
		require.Empty(t, warnings, "once")

		// Another pool finds everything done.
		l, err = guarded(t, ps).TryLock(bg, "a")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(bg))
	})
}

func TestTwoPoolsAtOnceAreOneFirstUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for i, p := range ps {
			p.delay = time.Duration(i) * time.Millisecond
		}
		errs := make(chan error)
		for i := range 4 {
			p := guarded(t, ps)
			go func() {
				_, err := p.TryLock(bg, fmt.Sprint(i))
				errs <- err
			}()
		}
		for range 4 {
			require.NoError(t, <-errs)
		}
		time.Sleep(time.Second)
		require.Equal(t, 5, steadies(ps))
	})
}

func TestFreshlyStartedServersWaitOneGuardAndSaySo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps {
			p.Started = time.Now().Add(-10 * time.Second)
		}
		p := guarded(t, ps)
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "just been started: no vote for another 21.3")
		require.ErrorContains(t, err, "WithRestartGuard")
		began := time.Now()
		l, err := p.Lock(bg, "a")
		require.NoError(t, err)
		require.InDelta(t, 22, time.Since(began).Seconds(), 1.5, "ten seconds of the guard were over")
		require.NoError(t, l.Unlock(bg))
	})
}

func TestFirstUseWithANodeAwayWaitsTheGuard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		ps[4].refuse = true
		p := guarded(t, ps)
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		time.Sleep(guardOver)
		require.Equal(t, []bool{true, true, true, true, false}, grants(t, p, "a"))
	})
}

func TestARestartedNodeHasNoVoteUntilTheGuardIsOver(t *testing.T) { // FAULTS 31, 58, 60
	for name, keeping := range map[string]bool{"empty": false, "with its data": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p := guarded(t, ps)
				rival := guarded(t, ps)
				lockAndUnlock(t, p, "a")
				lockAndUnlock(t, rival, "a")
				ps[2].reboot(keeping)
				want := []bool{true, true, false, true, true}
				require.Equal(t, want, grants(t, p, "b"), "the first batch after the restart")
				ps[2].do(func() { ps[2].Clock = time.Hour }) // its clock does not count
				for range 10 {
					time.Sleep(guard / 11)
					require.Equal(t, want, grants(t, p, "b"))
					require.Equal(t, want, grants(t, rival, "b"))
				}
				_, err := testPool(t, ps[2:3], WithRestartGuard(guard)).TryLock(bg, "b")
				require.Error(t, err)
				time.Sleep(5 * time.Second)
				require.Equal(t, 5, steadies(ps))
				require.Equal(t, []bool{true, true, true, true, true}, grants(t, p, "b"))
				require.Equal(t, []bool{true, true, true, true, true}, grants(t, rival, "b"))
			})
		})
	}
}

// A holds 1, 2 and 3; node 3 forgets; B asks 3, 4 and 5.
func TestANodeThatForgotDoesNotLetARivalIn(t *testing.T) { // FAULTS 31
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, rival := guarded(t, ps, WithLease(20*time.Second)), guarded(t, ps, WithLease(20*time.Second))
		lockAndUnlock(t, p, "warm")
		lockAndUnlock(t, rival, "warm")
		time.Sleep(time.Second)
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "OOM" })
		}
		l := mustLock(t, p)
		synctest.Wait() // until nodes 4 and 5 have refused too
		for _, x := range ps[3:] {
			x.do(func() { x.Errs["acquire"] = "" })
		}
		ps[2].reboot(false)
		_, err := rival.TryLock(bg, "a")
		require.Error(t, err)
		require.ErrorContains(t, err, "no vote for ")
		require.True(t, l.Valid())
	})
}

func TestAFlushOfAMajorityIsNotAFirstUse(t *testing.T) { // FAULTS 59
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		for _, x := range ps {
			x.flush()
		}
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		_, err = guarded(t, ps).TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "it restarted, lost its data")
		require.Zero(t, steadies(ps))
		time.Sleep(guardOver + time.Second)
		require.Equal(t, 5, steadies(ps))
	})
}

// A on 1 and 2, with 3 refilled; 4 and 5 unreachable for A. The refilled node must not keep A alive.
func TestARefilledNodeThatIsNotSteadyKeepsNoLockAlive(t *testing.T) { // FAULTS 61
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps, WithTTL(9*time.Second))
		l := mustLock(t, p)
		time.Sleep(time.Second)
		for _, x := range ps[3:] {
			x.do(func() { x.refuse = true })
			x.cut()
		}
		ps[2].reboot(false)
		time.Sleep(5 * time.Second)
		require.Equal(t, l.Token(), ps[2].owner("lock:a"), "it is refilled")
		<-l.Lost()
		require.ErrorIs(t, l.Err(), ErrNoQuorum)
		require.ErrorContains(t, l.Err(), "no vote for another")
		time.Sleep(5 * time.Second)
		require.Zero(t, leftovers(ps[:3]))
	})
}

func TestARollingRestartSlowerThanTheGuardLosesNothing(t *testing.T) { // FAULTS 25
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, rival := guarded(t, ps), guarded(t, ps)
		l := mustLock(t, p)
		for _, x := range ps {
			x.reboot(false)
			time.Sleep(guardOver + 11*time.Second)
			_, err := rival.TryLock(bg, "a")
			require.ErrorIs(t, err, ErrHeld)
		}
		require.True(t, l.Valid())
		require.Equal(t, 2, l.Margin())
		fence := l.Fence()
		require.NoError(t, l.Unlock(bg))
		next, err := rival.Lock(bg, "a")
		require.NoError(t, err)
		require.Greater(t, next.Fence(), fence)
	})
}

// The node comes back with a snapshot in which a released lock is held, a held one is missing, and its marker is old.
func TestAnOldSnapshotIsSeenByItsMarker(t *testing.T) { // FAULTS 52
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		old := mustLock(t, p)
		time.Sleep(time.Second)
		keys, fields := map[string]model.Value{}, map[string]string{}
		ps[0].do(func() {
			for k, v := range ps[0].Keys {
				keys[k] = v
			}
			for f, v := range ps[0].Fields {
				fields[f] = v
			}
		})
		require.NoError(t, old.Unlock(bg))
		next, err := p.Lock(bg, "a")
		require.NoError(t, err)
		require.Greater(t, next.Fence(), old.Fence())
		ps[0].reboot(false)
		ps[0].do(func() { ps[0].Keys, ps[0].Fields = keys, fields })
		require.Equal(t, []bool{false, true, true, true, true}, grants(t, p, "b"))
		require.NoError(t, next.Unlock(bg))
		time.Sleep(guardOver + 2*time.Second)
		require.Equal(t, 5, steadies(ps))
		require.GreaterOrEqual(t, ps[0].counter("a"), next.Fence(), "healed with the others' counters")
		require.Empty(t, ps[0].owner("lock:a"), "the revived key died by its TTL")
	})
}

func TestANodeIsHealedWithTheHighestCountersOfAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		ps[0].reboot(false)
		time.Sleep(guard)
		high := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i, x := range ps[1:4] { // now, and not when the node was lost
			x.setCounter("a", high+uint64(i))
		}
		time.Sleep(guardOver - guard + 2*time.Second)
		require.Equal(t, 5, steadies(ps))
		require.GreaterOrEqual(t, ps[0].counter("a"), high+1, "any three of the four others include one of these")
	})
}

// A restart while the nonce is watched begins the guard anew.
func TestAnotherRestartBeginsTheGuardAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		ps[0].reboot(false)
		time.Sleep(guard - time.Second)
		for _, again := range []func(){func() { ps[0].reboot(true) }, ps[0].flush} {
			again()
			time.Sleep(guard - time.Second)
			require.Equal(t, []bool{false, true, true, true, true}, grants(t, p, "b"))
		}
		time.Sleep(4 * time.Second)
		require.Equal(t, []bool{true, true, true, true, true}, grants(t, p, "b"))
	})
}

func TestWithoutAGuardNothingIsLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "a")
		time.Sleep(time.Minute)
		for _, x := range ps {
			require.Zero(t, x.count("info")+x.count("hget")+x.count("mark"))
			require.Empty(t, x.marker())
		}
		for _, n := range p.Stats().Nodes {
			require.True(t, n.Steady)
		}
		ps[0].reboot(false)
		require.Equal(t, []bool{true, true, true}, grants(t, p, "a"))
	})
}

// What looks after markers must not cost the hot path anything.
func TestASteadyNodeIsRarelyLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		before := ps[0].count("info")
		for range 600 {
			lockAndUnlock(t, p, "a")
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, ps[0].count("info")-before, 7, "once in ten seconds")
	})
}

func TestMarkersCarryNoSecondsAndCompareWhole(t *testing.T) {
	m := marker{settingsOf(5, 3, guard), "run", steadyWord}
	require.Equal(t, m, parseMarker(m.String()))
	require.Equal(t, "redlock/1 n=5 k=3 guard=30000 stripes=1024 run=run steady", m.String())
	require.NotEqual(t, noMarker, m.String())
	for _, text := range []string{"", " ", "x", runField, runField + " ", strings.Repeat(runField, 3)} {
		require.NotEqual(t, steadyWord, parseMarker(text).state)
	}
}

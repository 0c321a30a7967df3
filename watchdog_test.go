package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// recorder keeps the events of a pool by name.
type recorder struct {
	mu     sync.Mutex
	events map[string][]Event
}

func (r *recorder) observer() Observer {
	r.events = map[string][]Event{}
	note := func(e Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[e.Name] = append(r.events[e.Name], e)
	}
	return Observer{Acquired: note, Denied: note, Renewed: note, RenewalFailed: note, Degraded: note, Restored: note,
		Lost: note, Released: note, NodeLost: note, NodeBack: note, UndoPending: note, Warning: note}
}

func (r *recorder) of(name string) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Event(nil), r.events[name]...)
}

func TestAHeldLockKeepsRivalsOut(t *testing.T) { // FAULTS 19
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps {
			p.delay = time.Millisecond
		}
		const ttl = time.Second
		p, rival := testPool(t, ps, WithTTL(ttl)), testPool(t, ps, WithTTL(ttl))
		l := mustLock(t, p)
		ctx, cancel := context.WithTimeout(bg, 5*ttl)
		defer cancel()
		_, err := rival.Lock(ctx, "a", WithRetry(time.Millisecond, 3*time.Millisecond))
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, l.Valid())
		require.NoError(t, l.Unlock(bg))
	})
}

func TestAFrozenMajorityIsALossByTheDeadline(t *testing.T) { // FAULTS 20
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		var r recorder
		p := testPool(t, ps, WithTTL(3*time.Second), WithObserver(r.observer()))
		l := mustLock(t, p)
		time.Sleep(4 * time.Second) // renewed
		for _, x := range ps[:3] {
			x.freeze()
		}
		deadline := l.ValidUntil()
		<-l.Lost()
		require.False(t, time.Now().After(deadline), "told %v late", time.Since(deadline))
		require.Error(t, l.Context().Err())
		for _, err := range []error{l.Err(), context.Cause(l.Context())} {
			require.ErrorIs(t, err, ErrLost)
			require.ErrorIs(t, err, ErrNoQuorum)
			require.NotErrorIs(t, err, ErrHeld)
			why := nodeReasons(t, err)
			for _, x := range ps[:3] {
				require.Contains(t, why[x.name], "no answer within 250ms")
			}
		}
		synctest.Wait()
		require.Len(t, r.of("lost"), 1)
		for _, x := range ps[:3] {
			x.thaw()
		}
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestKeysGoneOnAMajorityAreALossAtTheNextRenewal(t *testing.T) { // FAULTS 21
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l := mustLock(t, p)
		time.Sleep(time.Second)
		for _, x := range ps[:3] {
			x.flush()
		}
		start := time.Now()
		<-l.Lost()
		require.LessOrEqual(t, time.Since(start), 10*time.Second)
		require.ErrorIs(t, l.Err(), ErrHeld)
		require.NotErrorIs(t, l.Err(), ErrNoQuorum)
		synctest.Wait()
		require.Zero(t, leftovers(ps), "what the renewal gave back is taken again")
	})
}

func TestOneFailedRenewalRoundLosesNothing(t *testing.T) { // FAULTS 22
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		var r recorder
		p := testPool(t, ps, WithTTL(9*time.Second), WithObserver(r.observer()))
		l := mustLock(t, p)
		time.Sleep(time.Second)
		for _, x := range ps {
			x.do(func() { x.Errs["renew"] = "BUSY Redis is busy running a script." })
		}
		time.Sleep(2500 * time.Millisecond)
		require.NotEmpty(t, r.of("renewal_failed"))
		require.Contains(t, r.of("renewal_failed")[0].Err.Error(), "BUSY")
		for _, x := range ps {
			x.do(func() { clear(x.Errs) })
		}
		time.Sleep(20 * time.Second)
		require.True(t, l.Valid())
		require.Empty(t, r.of("lost"))
	})
}

func TestNodesThatForgetOneAfterTheOtherAreHealed(t *testing.T) { // FAULTS 23
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		var r recorder
		p := testPool(t, ps, WithTTL(9*time.Second), WithObserver(r.observer()))
		l := mustLock(t, p)
		time.Sleep(time.Second)
		require.Equal(t, 2, l.Margin())
		for _, x := range ps {
			x.flush()
			time.Sleep(6 * time.Second) // two renewals
			require.Equal(t, l.Token(), x.owner("lock:a"))
			require.Equal(t, 2, l.Margin())
		}
		require.True(t, l.Valid())
		require.Empty(t, r.of("lost"))
		require.EqualValues(t, 5, p.Stats().Refilled)
	})
}

func TestAnExtendThatIsWonAfterTheDeadlineFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		c := &suspendClock{}
		p := newPoolAt(t, ps, c)
		l := mustLock(t, p)
		synctest.Wait()
		for _, x := range ps {
			x.do(func() { x.delay = 100 * time.Millisecond })
		}
		time.AfterFunc(50*time.Millisecond, func() { c.jump(time.Minute) }) // suspended in mid-round; no tick comes first
		require.ErrorIs(t, l.Extend(bg), ErrLost)
		require.False(t, l.Valid())
		require.Zero(t, p.Stats().Renewed)
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestMoreRenewalsThanFitAreSentInTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		c := &suspendClock{}
		var readings atomic.Int64
		c.hook = func() time.Duration { readings.Add(1); return 0 }
		p := newPoolAt(t, ps, c, WithTTL(9*time.Second))
		var locks []*Lock
		for i := range 3 * maxRenewals {
			l, err := p.Lock(bg, fmt.Sprint("r", i))
			require.NoError(t, err)
			locks = append(locks, l)
		}
		time.Sleep(time.Second)
		for _, x := range ps {
			x.do(func() { x.delay = 50 * time.Millisecond })
		}
		before := readings.Load()
		time.Sleep(20 * time.Second)
		require.Less(t, readings.Load()-before, int64(1_000_000), "waiting must not be spinning")
		for _, l := range locks {
			require.True(t, l.Valid())
		}
		require.Equal(t, len(locks), p.Stats().Held)
		for _, x := range ps {
			x.do(func() { x.delay = 0 })
		}
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		time.Sleep(time.Second)
	})
}

func TestAFurtherDropIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		var r recorder
		p := testPool(t, ps, WithTTL(3*time.Second), WithObserver(r.observer()))
		mustLock(t, p)
		time.Sleep(time.Second)
		require.Empty(t, r.of("degraded"))
		ps[0].freeze()
		time.Sleep(10 * time.Second)
		ps[1].freeze()
		time.Sleep(10 * time.Second)
		var margins []int
		for _, e := range r.of("degraded") {
			margins = append(margins, e.Margin)
		}
		require.Equal(t, []int{1, 0}, margins)
		ps[0].thaw()
		ps[1].thaw()
		time.Sleep(5 * time.Second)
		require.Len(t, r.of("restored"), 1)
	})
}

func TestMaxHoldEndsALock(t *testing.T) { // FAULTS 26
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithTTL(time.Second))
		start := time.Now()
		l := mustLock(t, p, WithMaxHold(3*time.Second))
		time.Sleep(2900 * time.Millisecond)
		require.NoError(t, l.Extend(bg))
		require.False(t, l.ValidUntil().After(start.Add(3*time.Second)), "Extend does not pass it")
		<-l.Lost()
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, l.Err(), ErrMaxHold)
		require.ErrorIs(t, l.Err(), ErrLost)
		require.NotErrorIs(t, l.Err(), ErrNoQuorum)
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestALeaseIsToppedUpOnceAndEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		ps[4].Errs["acquire"] = "BUSY Redis is busy running a script."
		p := testPool(t, ps)
		start := time.Now()
		l := mustLock(t, p, WithLease(10*time.Second))
		synctest.Wait()
		ps[4].do(func() { clear(ps[4].Errs) })
		time.Sleep(2 * time.Second)
		require.Equal(t, l.Token(), ps[4].owner("lock:a"))
		require.Equal(t, 2, l.Margin())
		for _, x := range ps {
			require.Zero(t, x.count("renew"))
			x.do(func() { require.False(t, x.Keys["lock:a"].Expires.After(start.Add(10*time.Second))) })
		}
		<-l.Lost()
		require.Equal(t, 9898*time.Millisecond, time.Since(start))
		require.Equal(t, errors.Is(l.Err(), ErrLost), true)
		require.NotErrorIs(t, l.Err(), ErrNoQuorum)
	})
}

func TestAToppedUpNodeVouchesForNoMoreThanTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps[3:] {
			x.Errs["acquire"] = "BUSY Redis is busy running a script."
		}
		p := testPool(t, ps)
		l := mustLock(t, p, WithLease(10*time.Second))
		synctest.Wait()
		for _, x := range ps[3:] {
			x.do(func() { clear(x.Errs) })
		}
		time.Sleep(time.Second)
		require.Equal(t, 5, owners(ps, "lock:a", l.Token()))
		until := l.ValidUntil()
		for _, x := range ps[2:] {
			x.freeze()
		}
		require.ErrorIs(t, l.Extend(bg), ErrNoQuorum)
		require.Equal(t, until, l.ValidUntil(), "two confirm, the third latest is from the start of the lease")
	})
}

func TestExtendProlongsALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l := mustLock(t, p, WithLease(10*time.Second))
		time.Sleep(9 * time.Second)
		require.NoError(t, l.Extend(bg))
		require.Equal(t, time.Now().Add(9898*time.Millisecond), l.ValidUntil())
		for _, x := range ps[:3] {
			x.freeze()
		}
		time.Sleep(time.Second)
		until := l.ValidUntil()
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		err := l.Extend(ctx)
		require.ErrorIs(t, err, ErrNoQuorum)
		require.NotErrorIs(t, err, ErrLost)
		require.Equal(t, until, l.ValidUntil(), "a failed Extend changes nothing")
		require.True(t, l.Valid())
	})
}

func TestARenewalCountedAfterTheDeadlineIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		l := mustLock(t, p, WithLease(time.Second), WithRetry(time.Millisecond, time.Millisecond))
		time.Sleep(900 * time.Millisecond)
		for _, x := range ps {
			x.do(func() { x.delay = 100 * time.Millisecond })
		}
		// asked before the deadline at 988 ms, answered behind it
		err := l.Extend(bg)
		require.ErrorIs(t, err, ErrLost)
		require.False(t, l.Valid())
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestUnlockRacingARenewalLeavesNothing(t *testing.T) { // FAULTS 16
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps, WithTTL(9*time.Millisecond), WithDrift(0, 0))
		for i := range 10_000 {
			l, err := p.Lock(bg, "a")
			require.NoError(t, err)
			time.Sleep(time.Duration(i%4) * time.Millisecond)
			if i%3 == 0 {
				go func() { _ = l.Extend(bg) }()
			}
			require.NoError(t, l.Unlock(bg))
		}
		synctest.Wait()
		require.Zero(t, leftovers(ps))
		require.Zero(t, undoPending(p))
	})
}

func TestASlowObserverDelaysNothing(t *testing.T) { // FAULTS 29
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		block := make(chan struct{})
		p := testPool(t, ps, WithTTL(time.Second), WithObserver(Observer{
			Acquired: func(Event) { <-block },
			Renewed:  func(Event) { <-block },
		}))
		l := mustLock(t, p)
		time.Sleep(1000 * time.Second)
		require.True(t, l.Valid())
		require.Greater(t, p.Stats().Renewed, uint64(2000))
		require.Greater(t, p.Stats().EventsDropped, uint64(900))
		close(block)
	})
}

func TestDegradedAndRestoredAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		ps[4].refuse = true
		var r recorder
		p := testPool(t, ps, WithTTL(3*time.Second), WithObserver(r.observer()))
		l := mustLock(t, p)
		synctest.Wait()
		require.Len(t, r.of("degraded"), 1)
		require.Equal(t, 4, r.of("degraded")[0].Granted)
		require.Equal(t, 1, l.Margin())
		require.Len(t, r.of("node_lost"), 1)
		ps[4].restart()
		time.Sleep(3 * time.Second)
		require.Len(t, r.of("restored"), 1)
		require.Len(t, r.of("node_back"), 1)
		require.Equal(t, 2, l.Margin())
		require.Equal(t, l.Token(), ps[4].owner("lock:a"))
	})
}

func TestMarginIsTheLossesALockSurvives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			quorum   Quorum
			up, want int
		}{{Majority, 3, 0}, {Majority, 4, 1}, {Majority, 5, 2}, {AtLeast(4), 4, 2}, {All, 5, 4}} {
			ps := newPeers(t, 5)
			for _, x := range ps[c.up:] {
				x.refuse = true
			}
			p := testPool(t, ps, WithQuorum(c.quorum))
			l := mustLock(t, p)
			synctest.Wait()
			require.Equal(t, c.want, l.Margin(), "%+v", c)
		}
	})
}

func TestALockAboveTheMajorityIsKeptByAMajority(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithQuorum(All), WithTTL(3*time.Second))
		l := mustLock(t, p)
		for _, x := range ps[:2] {
			x.freeze()
		}
		time.Sleep(10 * time.Second)
		require.True(t, l.Valid())
		_, err := p.TryLock(bg, "b")
		require.ErrorIs(t, err, ErrNoQuorum)
	})
}

func TestManyHeldLocksCostNoGoroutines(t *testing.T) { // FAULTS 28 in small
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		ps[2].hole = true
		p := testPool(t, ps, WithTTL(9*time.Second))
		var locks []*Lock
		for i := range 5000 {
			l, err := p.Lock(bg, fmt.Sprint("r", i))
			require.NoError(t, err)
			locks = append(locks, l)
		}
		time.Sleep(30 * time.Second)
		for _, l := range locks {
			require.True(t, l.Valid())
		}
		require.Equal(t, 5000, p.Stats().Held)
	})
}

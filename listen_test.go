package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

// never is a WithRetry that leaves waking to others.
var never = WithRetry(time.Hour, time.Hour)

// waitsFor has other wait for what l holds, unlocks l after a second, and says how long it then took other.
func waitsFor(t *testing.T, l *Lock, other *Pool, opts ...LockOption) time.Duration {
	t.Helper()
	later(t, l, time.Second)
	start := time.Now()
	next, err := other.Lock(bg, "a", opts...)
	require.NoError(t, err)
	took := time.Since(start) - time.Second
	require.NoError(t, next.Unlock(bg))
	return took
}

func TestAWaiterIsWokenByTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		before := 0
		for range 3 {
			l := mustLock(t, p)
			synctest.Wait() // a lock is there before all have answered
			before = counts(ps, "acquire")
			require.Less(t, waitsFor(t, l, other, never), 10*time.Millisecond)
		}
		require.LessOrEqual(t, counts(ps, "acquire")-before, 2*5, "a try at first, and the one that won")
	})
}

func TestALostMessageCostsOnePollNotATTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.Mute = true
		}
		p, other := testPool(t, ps), testPool(t, ps)
		for _, opts := range [][]LockOption{{never}, {never, WithFair()}} {
			require.LessOrEqual(t, waitsFor(t, mustLock(t, p), other, opts...), lookEvery+10*time.Millisecond)
		}
	})
}

func TestAReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		warm(t, other)
		for i := range 20 {
			l := mustLock(t, p)
			for _, x := range ps { // the release comes between the try and the subscription's end
				x.do(func() { x.delay = time.Millisecond })
			}
			later(t, l, time.Duration(500+100*i)*time.Microsecond)
			start := time.Now()
			next, err := other.Lock(bg, "a", never)
			require.NoError(t, err)
			require.Less(t, time.Since(start), 50*time.Millisecond, "%d", i)
			require.NoError(t, next.Unlock(bg))
			for _, x := range ps {
				x.do(func() { x.delay = 0 })
			}
			time.Sleep(3 * lineIdle) // it is not subscribed any more
		}
	})
}

// A message has a connection of its own, so it may overtake the denial that the server sent before it.
func TestAReleaseDuringATryIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		waitsFor(t, mustLock(t, p), other) // from now on it is subscribed
		for _, n := range []int{5, 3, 1} {
			l := mustLock(t, p)
			for _, x := range ps[:n] {
				x.do(func() { x.lag = 5 * time.Millisecond })
			}
			later(t, l, 2*time.Millisecond)
			start := time.Now()
			next, err := other.Lock(bg, "a", never)
			require.NoError(t, err)
			require.Less(t, time.Since(start), 50*time.Millisecond)
			for _, x := range ps {
				x.do(func() { x.lag = 0 })
			}
			require.NoError(t, next.Unlock(bg))
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestASubscriptionThatWasCutIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		l := mustLock(t, p)
		time.AfterFunc(400*time.Millisecond, func() {
			for _, x := range ps {
				x.cut()
			}
		})
		subscribed := counts(ps, "subscribe")
		require.Less(t, waitsFor(t, l, other, never), 10*time.Millisecond, "it hears again")
		require.Equal(t, subscribed+2*5, counts(ps, "subscribe"))

		l = mustLock(t, p) // and a release while it does not hear costs no more than the pause until it does
		time.AfterFunc(999*time.Millisecond, func() {
			for _, x := range ps {
				x.cut()
			}
		})
		require.Less(t, waitsFor(t, l, other, never), listenerPause+10*time.Millisecond)
	})
}

func TestASilentSubscriptionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		mustLock(t, p)
		ctx, cancel := context.WithTimeout(bg, 20*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); _, _ = other.Lock(ctx, "a", never) }()
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, ps[0].count("subscribe"))
		ps[0].do(func() { ps[0].deaf = true })
		time.Sleep(3 * listenerPing)
		ps[0].do(func() { ps[0].deaf = false })
		time.Sleep(time.Second)
		require.Equal(t, 2, ps[0].count("subscribe"))
		cancel()
		<-done
	})
}

func TestANodeThatRefusesSubscriptionsIsSaidOnceAndPolled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps[:3] {
			x.Errs["subscribe"] = "NOPERM this user has no permissions to access one of the channels used as arguments"
		}
		warnings := make(chan Event, 100)
		p := testPool(t, ps)
		other := testPool(t, ps, WithObserver(Observer{Warning: func(e Event) { warnings <- e }}))
		l := mustLock(t, p)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := other.Lock(ctx, "a", WithRetry(20*time.Millisecond, 200*time.Millisecond))
		require.ErrorIs(t, err, ErrHeld)
		require.Less(t, waitsFor(t, l, other, WithRetry(20*time.Millisecond, 200*time.Millisecond)), 210*time.Millisecond)
		synctest.Wait()
		require.Len(t, warnings, 3)
		e := <-warnings
		require.ErrorContains(t, e.Err, "NOPERM")
		require.ErrorContains(t, e.Err, "docs/operations.md")
	})
}

func TestAServerThatMayNotPublishReleasesAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.Errs["publish"] = "NOPERM"
		}
		warnings := make(chan Event, 100)
		p, other := testPool(t, ps, WithObserver(Observer{Warning: func(e Event) { warnings <- e }})), testPool(t, ps)
		for range 2 {
			require.LessOrEqual(t, waitsFor(t, mustLock(t, p), other, never), lookEvery+10*time.Millisecond)
		}
		synctest.Wait()
		require.Zero(t, leftovers(ps))
		require.Len(t, warnings, 5, "one a node")
		require.ErrorContains(t, (<-warnings).Err, "PUBLISH")
	})
}

func TestNobodySubscribesWhereNobodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		for range 10 {
			lockAndUnlock(t, p, "a")
		}
		_, err := p.Lock(bg, "fair", WithFair())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.Zero(t, counts(ps, "subscribe")+counts(ps, "peek"))

		// And after somebody has waited.
		waitsFor(t, mustLock(t, p), other)
		time.Sleep(3 * lineIdle)
		for _, x := range ps {
			x.do(func() { require.Empty(t, x.Subscribers) })
		}
		time.Sleep(2 * listenerIdle)
		for _, x := range ps {
			x.do(func() { require.Len(t, x.conns, 2, "one for each pool") })
		}
		peeks := counts(ps, "peek")
		time.Sleep(time.Minute)
		require.Equal(t, peeks, counts(ps, "peek"))
		require.Less(t, waitsFor(t, mustLock(t, p), other, never), 10*time.Millisecond, "it connects again")
	})
}

func TestOneSubscriptionConnectionServesAllWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1000
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		var locks []*Lock
		got := make(chan int, n)
		for i := range n {
			name := fmt.Sprint("r", i)
			l, err := p.Lock(bg, name)
			require.NoError(t, err)
			locks = append(locks, l)
			go func() {
				next, err := other.Lock(bg, name, never)
				require.NoError(t, err)
				got <- i
				_ = next.Unlock(bg)
			}()
		}
		time.Sleep(10 * time.Second)
		for _, x := range ps {
			x.do(func() { require.Len(t, x.conns, 3); require.Len(t, x.Subscribers, n) })
		}
		asked := counts(ps, "acquire")
		time.Sleep(2 * time.Minute)
		require.LessOrEqual(t, counts(ps, "acquire")-asked, n*5/10, "while holders renew their locks nobody asks for them")
		for i, l := range locks {
			require.NoError(t, l.Unlock(bg))
			require.Equal(t, i, <-got)
		}
	})
}

func TestADeadHoldersLockIsTakenWhenItRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		for _, x := range ps {
			x.Keys["lock:a"] = model.Value{S: "dead holder's", Expires: time.Now().Add(10 * time.Second)}
		}
		start := time.Now()
		_, err := p.Lock(bg, "a", never)
		require.NoError(t, err)
		require.InDelta(t, 10, time.Since(start).Seconds(), 0.02, "and not with the next look at the nodes")
	})
}

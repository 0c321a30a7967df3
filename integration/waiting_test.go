package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

const (
	onePoll  = time.Second            // the longest time between two looks at what nobody has told of
	promptly = 200 * time.Millisecond // far less than a poll, far more than a message takes
)

// never is a WithRetry that leaves waking to others.
var never = redlock.WithRetry(time.Hour, time.Hour)

// queue of those who wait for "a" in order.
const queue = "lock:redlock:queue:a"

// await is a Lock call that waits.
type await struct {
	t    *testing.T
	got  chan *redlock.Lock
	at   time.Time // when Lock returned; read it after got
	stop context.CancelFunc
}

// awaits has a pool wait for "a". The call is given up with the test.
func awaits(t *testing.T, p *redlock.Pool, opts ...redlock.LockOption) *await {
	t.Helper()
	return awaitsFor(t, p, "a", opts...)
}

func awaitsFor(t *testing.T, p *redlock.Pool, resource string, opts ...redlock.LockOption) *await {
	t.Helper()
	before := p.Stats().Waiting
	ctx, cancel := context.WithCancel(bg)
	t.Cleanup(cancel)
	w := &await{t: t, got: make(chan *redlock.Lock, 1), stop: cancel}
	go func() {
		l, err := p.Lock(ctx, resource, opts...)
		w.at = time.Now()
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		w.got <- l
	}()
	eventually(t, patience, "it waits", func() error { return is(p.Stats().Waiting > before) })
	return w
}

// takes unlocks what is in the way and returns how long after that the waiter had it. It gives it back.
func (w *await) takes(l *redlock.Lock) time.Duration {
	w.t.Helper()
	began := time.Now()
	require.NoError(w.t, l.Unlock(bg))
	return w.since(began)
}

func (w *await) since(began time.Time) time.Duration {
	w.t.Helper()
	select {
	case l := <-w.got:
		require.NotNil(w.t, l)
		require.NoError(w.t, l.Unlock(bg))
		return w.at.Sub(began)
	case <-time.After(patience):
		w.t.Fatal("the waiter does not get the lock")
		return 0
	}
}

// leave gives up.
func (w *await) leave() {
	w.stop()
	if l := <-w.got; l != nil {
		_ = l.Unlock(bg)
	}
}

// heard waits until every tape has one subscription, other than those before.
func heard(t *testing.T, tapes []*tape, before ...*taped) {
	t.Helper()
	eventually(t, patience, "it hears of releases from every server", func() error {
		for i, tp := range tapes {
			subs := tp.subscribers()
			if len(subs) != 1 || len(before) > 0 && subs[0] == before[i] {
				return fmt.Errorf("server %d: %d subscriptions", i, len(subs))
			}
		}
		return nil
	})
}

func subscriptions(tapes []*tape) (all []*taped) {
	for _, tp := range tapes {
		all = append(all, tp.subscribers()...)
	}
	return all
}

func TestWaitingEndsWithTheReleaseElsewhere(t *testing.T) {
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool()
		warm(t, p)

		// 1. In another process.
		h := r.holder(r.URLs(), 30*time.Second)
		require.True(t, h.ask("hold").Held)
		w := awaits(t, p, never)
		h.tell("free")
		freed := h.hear()
		require.False(t, freed.Held, freed.Err)
		require.Less(t, w.since(freed.Freed), promptly)

		// 2. In another pool, time and again.
		other := r.pool()
		warm(t, other)
		var took []time.Duration
		for range 30 {
			l := mustLock(t, other)
			took = append(took, awaits(t, p, never).takes(l))
		}
		t.Logf("Unlock to Lock: p50 %v, at worst %v", percentile(took, 0.5), took[len(took)-1])
		require.Less(t, took[len(took)-1], promptly)
	})
}

// cuts are ways to end all subscriptions.
func (r *rig) cuts(tapes []*tape) map[string]func() {
	ways := map[string]func(){"by the network": func() {
		for _, tp := range tapes {
			tp.deafen()
		}
	}}
	if r.Provider() != servers.Embedded {
		ways["by the server"] = func() {
			for i := range r.Len() {
				require.NoError(r.t, r.Server(i).Client().Do(bg, "CLIENT", "KILL", "TYPE", "pubsub").Err())
			}
		}
	}
	return ways
}

func TestWaitingOutlivesACutSubscription(t *testing.T) { // FAULTS 41
	onEvery(t, func(t *testing.T, r *rig) {
		tapes, urls := r.behindTapes()
		p, other := r.pool(), r.poolOf(urls)
		warm(t, p)
		warm(t, other)
		for how, cut := range r.cuts(tapes) {
			// 1. It is made again, and what is released then is heard of.
			l := mustLock(t, p)
			w := awaits(t, other, never)
			heard(t, tapes)
			before := subscriptions(tapes)
			cut()
			heard(t, tapes, before...)
			require.Less(t, w.takes(l), promptly, how)

			// 2. What is released while nothing can be heard costs a poll at most.
			l = mustLock(t, p)
			w = awaits(t, other, never)
			heard(t, tapes)
			cut()
			require.LessOrEqual(t, w.takes(l), onePoll+slack, how)
		}
	})
}

func TestWaitingNoticesAReleaseBeforeItCouldHear(t *testing.T) { // FAULTS 41
	onEvery(t, func(t *testing.T, r *rig) {
		tapes, urls := r.behindTapes()
		p, other := r.pool(), r.poolOf(urls)
		warm(t, p)
		warm(t, other)
		l := mustLock(t, p)
		for _, tp := range tapes {
			tp.shutOff()
		}
		w := awaits(t, other, never)
		for _, tp := range tapes {
			eventually(t, patience, "it has tried, and would subscribe", func() error { return is(tp.keptOut() == 1) })
		}
		require.NoError(t, l.Unlock(bg))
		for _, tp := range tapes {
			tp.reopen()
		}
		require.Less(t, w.since(time.Now()), promptly, "it asks what it may have missed as soon as it hears")
	})
}

func TestWaitingLosesAPollToLostMessages(t *testing.T) {
	onEvery(t, func(t *testing.T, r *rig) {
		tapes, urls := r.behindTapes()
		p, other := r.pool(), r.poolOf(urls)
		warm(t, p)
		warm(t, other)
		for _, tp := range tapes {
			tp.mute(true)
		}
		var all []*taped
		for _, opts := range [][]redlock.LockOption{{never}, {never, redlock.WithFair()}} {
			l := mustLock(t, p)
			w := awaits(t, other, opts...)
			heard(t, tapes)
			if all == nil {
				all = subscriptions(tapes)
			}
			r.eachHears("lock:a")
			require.LessOrEqual(t, w.takes(l), onePoll+slack)
		}
		require.Equal(t, all, subscriptions(tapes), "the connections themselves live")
		lost := 0
		for _, tp := range tapes {
			lost += tp.mute(false)
		}
		require.GreaterOrEqual(t, lost, 2*r.Len(), "of each release one from every server")
	})
}

// eachHears waits until somebody hears of the key's releases on every server.
func (r *rig) eachHears(key string) {
	r.t.Helper()
	channel := "lock:redlock:free:" + key
	eventually(r.t, patience, "somebody is subscribed on every server", func() error {
		for i := range r.Len() {
			n, err := r.Server(i).Client().PubSubNumSub(bg, channel).Result()
			if err != nil || n[channel] == 0 {
				return fmt.Errorf("server %d: %v, %v", i, n, err)
			}
		}
		return nil
	})
}

// queued waits until n stand in the queue of every server.
func (r *rig) queued(n int64) {
	r.t.Helper()
	eventually(r.t, patience, fmt.Sprint(n, " in every queue"), func() error {
		for i := range r.Len() {
			if got := r.Server(i).Client().HLen(bg, queue).Val(); got != n {
				return fmt.Errorf("%d on server %d", got, i)
			}
		}
		return nil
	})
}

func TestWaitingInOrderBehindAKilledProcessCostsATTL(t *testing.T) { // FAULTS 43
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 2 * time.Second
		p, next := r.pool(redlock.WithTTL(ttl)), r.pool(redlock.WithTTL(ttl))
		warm(t, p)
		warm(t, next)
		l := mustLock(t, p)
		first := r.holder(r.URLs(), ttl)
		first.tell("queue")
		r.queued(1)
		w := awaits(t, next, never, redlock.WithFair())
		r.queued(2)
		first.kill()
		took := w.takes(l)
		t.Logf("the next one has it after %v", took)
		require.LessOrEqual(t, took, ttl+slack)
	})
}

func TestWaitingFallsBackToPollingWithoutChannels(t *testing.T) {
	onReal(t, func(t *testing.T, r *rig) {
		urls := r.leastUser(leastCommands)
		for i := range r.Len() {
			require.NoError(t, r.Server(i).Client().Do(bg, "ACL", "SETUSER", "redlock", "resetchannels").Err())
		}
		events := &recorder{}
		p, other := r.poolOf(urls), r.poolOf(urls, redlock.WithObserver(events.observer()))
		warm(t, p)
		warm(t, other)
		const pause = 100 * time.Millisecond
		for _, opts := range [][]redlock.LockOption{{}, {redlock.WithFair()}} {
			for range 3 {
				l := mustLock(t, p)
				w := awaits(t, other, append(opts, redlock.WithRetry(pause/10, pause))...)
				eventually(t, patience, "it was told", func() error { return is(len(events.of("warning")) == r.Len()) })
				bound := pause
				if len(opts) > 0 {
					bound = onePoll
				}
				require.LessOrEqual(t, w.takes(l), bound+slack)
				r.gone()
			}
		}
		told := map[string]bool{}
		for _, e := range events.of("warning") {
			require.ErrorContains(t, e.Err, "allow its user the channels, see docs/operations.md")
			require.NotContains(t, e.Err.Error(), leastPassword)
			told[e.Node] = true
		}
		require.Len(t, told, r.Len(), "each node is named")
		require.Len(t, events.of("warning"), r.Len(), "and once")
	})
}

func TestWaitingTakesOneConnectionToEachServer(t *testing.T) {
	onReal(t, func(t *testing.T, r *rig) {
		listening := func(n int) error {
			for i := range r.Len() {
				list, err := r.Server(i).Client().Do(bg, "CLIENT", "LIST", "TYPE", "pubsub").Text()
				if got := strings.Count(list, "\n"); err != nil || got != n {
					return fmt.Errorf("server %d: %v: %s", i, err, list)
				}
			}
			return nil
		}
		p, other := r.pool(), r.pool()
		warm(t, p)
		warm(t, other)
		const n = 200
		var locks []*redlock.Lock
		for i := range n {
			l, err := p.Lock(bg, fmt.Sprint("r", i), redlock.WithFair())
			require.NoError(t, err)
			locks = append(locks, l)
			_, err = other.TryLock(bg, l.Resources()[0])
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.NoError(t, listening(0), "nobody waits")
		var waiters []*await
		for i := range n {
			waiters = append(waiters, awaitsFor(t, other, fmt.Sprint("r", i), never))
		}
		eventually(t, patience, "all resources are listened for", func() error {
			for i := range r.Len() {
				names, err := r.Server(i).Client().PubSubChannels(bg, "lock:redlock:free:*").Result()
				if err != nil || len(names) != n {
					return fmt.Errorf("server %d: %d channels, %v", i, len(names), err)
				}
			}
			return nil
		})
		require.NoError(t, listening(1))
		for i, w := range waiters {
			w.takes(locks[i])
		}
		eventually(t, patience, "nobody waits any more", func() error { return listening(0) })
	})
}

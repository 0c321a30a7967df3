package integration_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

func TestAHolderFrozenPastItsTTLKnowsAtTheFirstCall(t *testing.T) { // FAULTS 24
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		h := r.holder(r.URLs(), ttl)
		got := h.ask("try")
		require.True(t, got.Held, got.Err)
		eventually(t, patience, "it is renewed", func() error {
			got = h.ask("report")
			return is(got.Calls > 500)
		})
		require.True(t, got.Valid)
		require.Zero(t, got.Wrong)

		// It stands still; its keys run out; another comes and goes.
		h.freeze()
		rival := r.pool(redlock.WithTTL(ttl))
		frozen := time.Now()
		l, err := rival.Lock(bg, "a")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(bg))
		eventually(t, ttl, "the keys of both its locks have run out", func() error { return none(r.keys()) })
		throughout(t, time.Until(frozen.Add(ttl+ttl/2)), func() error { return none(r.keys()) })
		h.thaw()

		throughout(t, 2*ttl, func() error {
			if n := r.owners("lock:a", got.Token); n > 0 {
				return fmt.Errorf("taken again on %d nodes", n)
			}
			return nil
		})
		eventually(t, slack, "both locks are lost", func() error { got = h.ask("report"); return is(got.Told && !got.Valid) })
		require.Greater(t, got.Frozen, ttl, "else the test shows nothing")
		require.False(t, got.Revived, "Valid was true at the first call after the freeze, or later")
		require.Zero(t, got.Wrong)
		require.Contains(t, got.Err, "lost")
	})
}

func TestGrantedAndFrozenPastTheTTLIsNoLock(t *testing.T) { // FAULTS 55
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 2 * time.Second
		proxies, urls := r.behindProxies()
		h := r.holder(urls, ttl)

		// 1. All nodes grant, and the holder is frozen before it hears of it.
		for _, p := range proxies {
			p.Delay(time.Minute)
		}
		h.tell("try")
		eventually(t, nodeTimeout, "granted by all", func() error {
			for i := range r.Len() {
				if r.Server(i).Client().Exists(bg, "lock:a").Val() == 0 {
					return errNotYet
				}
			}
			return nil
		})
		h.freeze()
		for _, p := range proxies {
			p.Delay(0) // the grants now wait in its sockets
		}

		// 2. They run out before it goes on.
		eventually(t, ttl+slack, "the keys have run out", func() error { return none(r.keys()) })
		h.thaw()
		got := h.hear()
		require.False(t, got.Held)
		require.Contains(t, got.Err, "no quorum")
	})
}

func TestALossIsToldInTimeByABusyProcess(t *testing.T) { // FAULTS 54: GOMAXPROCS=1, forced GC
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		p := r.pool(redlock.WithTTL(ttl))
		l := mustLock(t, p)
		asked, err := p.Lock(bg, "asked")
		require.NoError(t, err)

		stop := make(chan struct{})
		var busy sync.WaitGroup
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		defer busy.Wait()
		defer sync.OnceFunc(func() { close(stop) })()
		work := func(f func()) {
			busy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						f()
					}
				}
			})
		}
		work(runtime.GC)
		work(func() {
			n := 0
			for range 10_000_000 {
				n++
			}
			runtime.KeepAlive(n)
		})

		busy.Go(func() { tillLost(t, asked) }) // all through it, the watchdog's own telling aside
		renewals(t, p, 6)
		r.freeze(majority...)
		late := awaitLoss(t, l)
		t.Log("the loss was told after the deadline by", late)
		require.Less(t, late, 5*slack, "a scheduler's delay, not a renewal's")
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.False(t, l.Valid())
	})
}

func TestALossIsToldInTimeUnderACPUQuota(t *testing.T) { // FAULTS 54: 10 % of a CPU
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 2 * time.Second
		h := r.holder(r.URLs(), ttl)
		got := h.ask("try")
		require.True(t, got.Held, got.Err)

		// What a quota does to a process that uses it up: it runs for 10 ms of every 100.
		stop := make(chan struct{})
		var quota sync.WaitGroup
		quota.Go(func() {
			for {
				h.stop()
				select {
				case <-stop:
					h.thaw()
					return
				case <-time.After(90 * time.Millisecond):
				}
				h.thaw()
				<-time.After(10 * time.Millisecond)
			}
		})
		eventually(t, 2*ttl, "it outlives its TTL by renewals", func() error { return is(h.ask("report").Calls > 150) })
		r.freeze(majority...)
		eventually(t, 2*ttl, "both locks are lost", func() error { got = h.ask("report"); return is(got.Told && !got.Valid) })
		close(stop)
		quota.Wait()
		t.Logf("the loss was told after the deadline by %v; Valid was called %d times, with a pause of up to %v", got.Late, got.Calls, got.Frozen)
		require.Less(t, got.Late, 3*slack, "one pause of the quota, and the machine's own")
		require.Zero(t, got.Wrong)
		require.False(t, got.Revived)
	})
}

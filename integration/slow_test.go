package integration_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

func TestAHungNodeCostsNothing(t *testing.T) { // FAULTS 1, 6
	hang := map[string]func(r *rig) (urls []string){
		"frozen": func(r *rig) []string {
			r.freeze(0)
			return r.URLs()
		},
		"black hole": func(r *rig) []string {
			proxies, urls := r.behindProxies()
			proxies[0].BlackHole(true)
			return urls
		},
	}
	for how, urls := range hang {
		t.Run(how, func(t *testing.T) {
			onEvery(t, func(t *testing.T, r *rig) {
				p := r.poolOf(urls(r), redlock.WithTTL(time.Hour))
				var longest time.Duration
				timed := func(f func() error) {
					start := time.Now()
					require.NoError(t, f())
					longest = max(longest, time.Since(start))
				}
				for range 30 {
					var l *redlock.Lock
					timed(func() (err error) { l, err = p.Lock(bg, "a"); return err })
					timed(func() error { return l.Extend(bg) })
					timed(func() error { return l.Unlock(bg) })
				}
				t.Log("longest call:", longest)
				require.Less(t, longest, nodeTimeout/2, "nobody waits for the hung node")

				eventually(t, nodeTimeout+slack, "the node is out", func() error { return is(p.Stats().Nodes[0].Down != "") })
				n := p.Stats().Nodes[0]
				require.Contains(t, n.Down, "no answer within 250ms", "the node timeout does not grow with the TTL")
				require.Zero(t, n.Queued)
				require.LessOrEqual(t, n.Pipelines, uint64(3), "nothing piles up behind it")
			})
		})
	}
}

// goRedisDefaults are clients as go-redis makes them: no ctx deadline ends a read.
func (r *rig) goRedisDefaults() []*redis.Client {
	var clients []*redis.Client
	for i := range r.Len() {
		c := redis.NewClient(&redis.Options{Addr: r.Server(i).Addr()})
		r.last(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

func TestAHungMajorityEndsWithTheCtx(t *testing.T) { // FAULTS 2
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.poolOn(r.goRedisDefaults())
		warm(t, p)
		r.freeze(majority...)
		for name, lock := range map[string]func(context.Context, string, ...redlock.LockOption) (*redlock.Lock, error){
			"TryLock": p.TryLock, "Lock": p.Lock,
		} {
			ctx, cancel := context.WithTimeout(bg, 200*time.Millisecond)
			var err error
			within(t, 200*time.Millisecond, name, func() { _, err = lock(ctx, "a") })
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			if name == "Lock" { // a TryLock may fail earlier, when all of these nodes are given up
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			why := reasons(t, err)
			for _, i := range majority {
				require.Contains(t, why[r.Server(i).Addr()], "answer")
			}
			cancel()
		}
	})
}

func TestACancelledAcquireIsBackAtOnceAndUndone(t *testing.T) { // FAULTS 3, 12
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.poolOn(r.goRedisDefaults())
		warm(t, p)
		r.freeze(majority...)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var cancelled time.Time
		time.AfterFunc(100*time.Millisecond, func() { cancelled = time.Now(); cancel() })
		_, err := p.Lock(ctx, "a")
		require.Less(t, time.Since(cancelled), slack)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		eventually(t, slack, "the healthy nodes are free at once", func() error {
			for _, i := range minority {
				if err := none(r.keysOn(i)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestSlowNodesDoNotSlowManyCallers(t *testing.T) { // FAULTS 4; benchmarks hold it to 1.5 x
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls, redlock.WithNodeTimeout(time.Second))
		warm(t, p)
		// What slow nodes do shows every time. What else happens on the machine does not.
		for try := 1; ; try++ {
			healthy, calm := load(t, p, 200)
			proxies[0].Delay(200 * time.Millisecond)
			proxies[1].Delay(2 * time.Second)
			slow, busy := load(t, p, 200)
			proxies[0].Delay(0)
			proxies[1].Delay(0)
			ratio := float64(slow) / float64(healthy)
			t.Logf("p99 of Lock + Unlock: %v healthy, %v with two slow nodes: %.2f x; goroutines: %d, %d",
				healthy, slow, ratio, calm, busy)
			require.LessOrEqual(t, busy, calm+30, "a slow node holds no goroutines") // each new connection has some in its proxy
			if ratio <= 3 {
				return
			}
			require.Less(t, try, 3, "the callers are slowed")
		}
	})
}

// load has callers lock and unlock ten times a second, each a resource of its own. It returns the 99th percentile of
// both together and the largest number of goroutines.
func load(t *testing.T, p *redlock.Pool, callers int) (p99 time.Duration, goroutines int) {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	end := time.Now().Add(1500 * time.Millisecond)
	for i := range callers {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for ; time.Now().Before(end); <-tick.C {
				start := time.Now()
				l, err := p.Lock(bg, fmt.Sprint("r", i))
				if err == nil {
					err = l.Unlock(bg)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; time.Now().Before(end); <-tick.C {
		goroutines = max(goroutines, runtime.NumGoroutine())
	}
	wg.Wait()
	require.NotEmpty(t, took)
	return percentile(took, 0.99), goroutines
}

func TestAMajorityFrozenDuringAcquireLeavesNothing(t *testing.T) { // FAULTS 7
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 4500 * time.Millisecond // longer than an undo may take, so that no key is gone by itself
		p := r.pool(redlock.WithTTL(ttl))
		warm(t, p)

		// Somebody locks and unlocks all the time, so that the freeze meets acquires under way.
		ctx, stop := context.WithCancel(bg)
		var busy sync.WaitGroup
		busy.Go(func() {
			for ctx.Err() == nil {
				l, err := p.TryLock(bg, "busy")
				if err != nil {
					continue
				}
				if left := time.Until(l.ValidUntil()); left < ttl/2 {
					t.Errorf("a lock with %v left", left)
				}
				_ = l.Unlock(bg)
			}
		})
		defer busy.Wait()
		defer stop()
		r.freeze(majority...)
		thawAt := time.Now().Add(ttl * 3 / 2)
		for time.Now().Before(thawAt) {
			within(t, nodeTimeout+50*time.Millisecond, "TryLock", func() {
				_, err := p.TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
			})
		}
		stop()
		busy.Wait()
		r.thaw(majority...)
		r.gone()
	})
}

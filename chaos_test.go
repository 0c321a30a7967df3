package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// owners keeps who believes to hold one resource, and checks each newcomer.
type ownership struct {
	mu    sync.Mutex
	held  []*Lock
	fence uint64
	wrong []string
	count int
}

func (o *ownership) take(l *Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++
	for _, other := range o.held {
		if other.Valid() && l.Valid() {
			o.wrong = append(o.wrong, fmt.Sprintf("two owners: fences %d and %d", other.Fence(), l.Fence()))
		}
	}
	if l.Fence() <= o.fence {
		o.wrong = append(o.wrong, fmt.Sprintf("fence %d after %d", l.Fence(), o.fence))
	}
	o.fence = max(o.fence, l.Fence())
	o.held = append(o.held, l)
}

func (o *ownership) drop(l *Lock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, each := range o.held {
		if each == l {
			o.held = append(o.held[:i], o.held[i+1:]...)
			return
		}
	}
}

// Whatever the marker can show happens at random, to as many nodes as it likes: restarts, flushes, old snapshots, cut
// connections, freezes. Nobody ever shares a lock, and fences rise while a majority keeps its counters.
func TestRandomRestartsNeverGiveTwoOwners(t *testing.T) {
	locks := 0
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { locks += chaos(t, seed) })
		})
	}
	require.Greater(t, locks, 150, "the test must have something to check")
}

func chaos(t *testing.T, seed uint64) int {
	const ttl, guard = time.Second, 1500 * time.Millisecond
	rng := rand.New(rand.NewPCG(seed, 1))
	ps := newPeers(t, 5)
	o := &ownership{}
	ctx, stop := context.WithTimeout(bg, time.Minute)
	defer stop()
	var workers sync.WaitGroup
	for i := range 4 {
		p := guarded(t, ps, WithTTL(ttl), WithRestartGuard(guard), WithRetry(5*time.Millisecond, 50*time.Millisecond))
		mine := rand.New(rand.NewPCG(seed, uint64(i)+2))
		workers.Go(func() {
			for ctx.Err() == nil {
				l, err := p.Lock(ctx, "a")
				if err != nil {
					continue
				}
				o.take(l)
				select {
				case <-l.Lost():
				case <-time.After(time.Duration(mine.Int64N(int64(ttl)))):
				}
				o.drop(l)
				_ = l.Unlock(ctx)
			}
		})
	}
	counters := make([]time.Duration, len(ps)) // until when a node may lack counters that it had
	began := time.Now()
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rng.Int64N(int64(150 * time.Millisecond)))) // a storm: a majority within a TTL
		if rng.IntN(30) == 0 {
			time.Sleep(2 * guard) // a calm, for nodes to become steady
		}
		i := rng.IntN(len(ps))
		x, now := ps[i], time.Since(began)
		lacking := 0
		for j, until := range counters {
			if j != i && now < until {
				lacking++
			}
		}
		forgets := lacking < 2 // a majority keeps its counters; keys may be lost everywhere
		switch rng.IntN(6) {
		case 0:
			x.reboot(!forgets)
		case 1:
			if forgets {
				x.flush()
			} else {
				x.do(func() { clear(x.Keys); delete(x.Fields, "marker") })
			}
		case 2:
			x.reboot(true)
		case 3:
			x.cut()
		case 4:
			x.freeze()
			time.Sleep(time.Duration(rng.Int64N(int64(ttl))))
			x.thaw()
			forgets = false
		case 5:
			x.do(func() { x.delay = time.Duration(rng.Int64N(int64(30 * time.Millisecond))) })
			forgets = false
		}
		if forgets {
			counters[i] = now + 3*guard
		}
	}
	for _, x := range ps {
		x.do(func() { x.delay = 0 })
	}
	workers.Wait()
	require.Empty(t, o.wrong)
	require.Positive(t, o.count)
	return o.count
}

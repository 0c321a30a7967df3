package redlock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// later unlocks a lock after a while.
func later(t *testing.T, l *Lock, d time.Duration) {
	time.AfterFunc(d, func() { require.NoError(t, l.Unlock(bg)) })
}

// inLine waits until so many calls of a pool wait.
func inLine(t *testing.T, p *Pool, n int) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, n, p.Stats().Waiting)
}

// slowly gives the peers a round trip, so that loops take time.
func slowly(ps []*peer) {
	for _, x := range ps {
		x.do(func() { x.delay = 100 * time.Microsecond })
	}
}

func counts(ps []*peer, name string) (n int) {
	for _, x := range ps {
		n += x.count(name)
	}
	return n
}

func TestWaitersOfAProcessAreServedInTheirOrderAndOnlyTheFirstAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		first := mustLock(t, p)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 100 {
			inLine(t, p, i)
			wg.Go(func() {
				l, err := p.Lock(bg, "a")
				require.NoError(t, err)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				require.NoError(t, l.Unlock(bg))
			})
		}
		inLine(t, p, 100)
		before := counts(ps, "acquire")
		require.Less(t, before, 3*5, "one of them asked")
		time.Sleep(25 * time.Second)
		require.Equal(t, before, counts(ps, "acquire"), "nobody asks again while the lock is one of ours")
		require.NoError(t, first.Unlock(bg))
		wg.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.LessOrEqual(t, counts(ps, "acquire"), before+100*5, "each asked once")
		require.EqualValues(t, 1, p.Stats().Denied, "and none in vain")
	})
}

func TestTheNextAcquireRidesBehindTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l := mustLock(t, p)
		got := make(chan *Lock)
		go func() { next, err := p.Lock(bg, "a"); require.NoError(t, err); got <- next }()
		inLine(t, p, 1)
		before := p.Stats().Nodes[0].Pipelines
		require.NoError(t, l.Unlock(bg))
		next := <-got
		synctest.Wait()
		require.Equal(t, before+1, p.Stats().Nodes[0].Pipelines, "the release and the acquire are one pipeline")
		require.NoError(t, next.Unlock(bg))
	})
}

// Many calls end just when the lock is handed to them. Whoever has the turn must not keep it.
func TestACancelledWaiterLeavesTheLineAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		p := testPool(t, ps)
		warm(t, p)
		var wg sync.WaitGroup
		for round := range 200 {
			l := mustLock(t, p)
			at := time.Duration(200+10*(round%100)) * time.Microsecond // before, during and after their turn
			for range 4 {
				ctx, cancel := context.WithTimeout(bg, at)
				wg.Go(func() {
					defer cancel()
					if l, err := p.Lock(ctx, "a"); err == nil {
						require.NoError(t, l.Unlock(bg))
					} else {
						require.ErrorIs(t, err, context.DeadlineExceeded)
					}
				})
			}
			time.Sleep(300 * time.Microsecond)
			require.NoError(t, l.Unlock(bg))
			wg.Wait()
			time.Sleep(time.Millisecond)
			require.Zero(t, leftovers(ps), "round %d", round)
		}
		// One that gives up in the middle of the line is not waited for.
		l := mustLock(t, p)
		ctx, cancel := context.WithCancel(bg)
		ended := make(chan error)
		go func() { _, err := p.Lock(bg, "a"); ended <- err }()
		inLine(t, p, 1)
		go func() { _, err := p.Lock(ctx, "a"); ended <- err }()
		inLine(t, p, 2)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, <-ended)
	})
}

// The ctx of the first in line ends right before a round is begun for it: nothing of that may stay.
func TestARoundThatWasBegunForACallThatGivesUpIsSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		p := testPool(t, ps)
		warm(t, p)
		freed := p.quorum.freed
		for range 40 {
			l := mustLock(t, p)
			ctx, cancel := context.WithCancel(bg)
			p.quorum.freed = func(h *hold) { cancel(); freed(h) }
			ended := make(chan error)
			go func() {
				l, err := p.Lock(ctx, "a")
				if err == nil {
					err = l.Unlock(bg)
				}
				ended <- err
			}()
			time.Sleep(time.Millisecond)
			require.NoError(t, l.Unlock(bg))
			if err := <-ended; err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			time.Sleep(time.Millisecond)
			require.Zero(t, leftovers(ps))
		}
	})
}

func TestCloseEndsTheWholeLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := newOpenPool(t, ps), testPool(t, ps)
		mustLock(t, other)
		ended := make(chan error, 10)
		for i := range 10 {
			var opts []LockOption
			if i%2 == 1 {
				opts = append(opts, WithFair())
			}
			go func() { _, err := p.Lock(bg, "a", opts...); ended <- err }()
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, p.Close())
		for range 10 {
			require.ErrorIs(t, <-ended, ErrClosed)
		}
		for _, x := range ps {
			x.do(func() { require.Empty(t, x.Subscribers); require.Zero(t, x.Waiting()) })
		}
	})
}

func TestNoMoreWaitThanWithMaxWaitersAllows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithMaxWaiters(2))
		l := mustLock(t, p)
		got := make(chan error, 2)
		for range 2 {
			go func() {
				next, err := p.Lock(bg, "a")
				got <- err
				_ = next.Unlock(bg)
			}()
		}
		inLine(t, p, 2)
		start := time.Now()
		_, err := p.Lock(bg, "a")
		require.ErrorIs(t, err, ErrTooManyWaiters)
		require.ErrorContains(t, err, `"a"`)
		require.Zero(t, time.Since(start), "at once")
		_, err = p.MultiLock(bg, []string{"0", "a"})
		require.ErrorIs(t, err, ErrTooManyWaiters)
		lockAndUnlock(t, p, "0")
		_, err = p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrHeld, "it does not wait")
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, <-got)
		require.NoError(t, <-got)
		lockAndUnlock(t, p, "a")
	})
}

func TestMultiLocksQueueUpWithoutDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		pools := []*Pool{testPool(t, ps), testPool(t, ps)}
		names := []string{"a", "b", "c", "d"}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 20 {
					var set []string
					for range 1 + random.IntN(3) {
						set = append(set, names[random.IntN(len(names))])
					}
					ctx, cancel := context.WithTimeout(bg, time.Minute)
					l, err := pools[i%2].MultiLock(ctx, set)
					cancel()
					require.NoError(t, err)
					require.NoError(t, l.Unlock(bg))
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second) // a release is over once a majority has it
		require.Zero(t, leftovers(ps))
	})
}

// loop locks and unlocks a resource until ctx ends, and says how often, and how long the longest wait was.
func loop(t *testing.T, ctx context.Context, p *Pool, opts ...LockOption) (n int, longest time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		l, err := p.Lock(ctx, "a", opts...)
		if err != nil {
			break
		}
		longest = max(longest, time.Since(began))
		n++
		require.NoError(t, l.Unlock(bg))
	}
	return n, longest
}

// 4 callers of one process hand a lock to each other, a fifth is in another.
func TestABusyProcessLetsOthersGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		busy, other := testPool(t, ps), testPool(t, ps)
		warm(t, busy)
		warm(t, other)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		var locals [4]int
		var wg sync.WaitGroup
		for i := range locals {
			wg.Go(func() { locals[i], _ = loop(t, ctx, busy) })
		}
		lone, longest := loop(t, ctx, other)
		wg.Wait()
		all := lone
		for _, n := range locals {
			all += n
		}
		require.GreaterOrEqual(t, lone, all/10, "of %d", all)
		require.Less(t, longest, 100*time.Millisecond)
	})
}

// A lone caller that locks again and again keeps nobody out either.
func TestACallerThatLocksInALoopLetsOthersGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		busy, other := testPool(t, ps), testPool(t, ps)
		warm(t, busy)
		warm(t, other)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wg.Go(func() { loop(t, ctx, busy) })
		time.Sleep(100 * time.Millisecond)
		for range 20 {
			start := time.Now()
			lockAndUnlock(t, other, "a")
			require.Less(t, time.Since(start), 100*time.Millisecond)
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		wg.Wait()
	})
}

// Five processes are woken by one release, again and again.
func TestSplitVotesAreSettledByAskingOneNodeFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for i, x := range ps {
			x.do(func() { x.delay = time.Duration(100+10*i) * time.Microsecond })
		}
		var pools []*Pool
		for range 5 {
			p := testPool(t, ps)
			warm(t, p)
			pools = append(pools, p)
		}
		acquires, rounds := counts(ps, "acquire"), 50
		var wg sync.WaitGroup
		var longest [5]time.Duration
		for i, p := range pools {
			wg.Go(func() {
				for range rounds {
					began := time.Now()
					l, err := p.Lock(bg, "a")
					require.NoError(t, err)
					longest[i] = max(longest[i], time.Since(began))
					time.Sleep(2 * time.Millisecond)
					require.NoError(t, l.Unlock(bg))
				}
			})
		}
		wg.Wait()
		asked := counts(ps, "acquire") - acquires
		require.Less(t, asked, 5*rounds*5*6, "a handover costs few requests")
		require.Less(t, slices.Max(longest[:]), time.Second)
		time.Sleep(time.Second)
		require.Zero(t, leftovers(ps))
	})
}

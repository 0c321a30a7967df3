package redlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bubble runs a test in virtual time: a goroutine left behind fails it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

var bg = context.Background()

func mustLock(t *testing.T, p *Pool, opts ...LockOption) *Lock {
	t.Helper()
	l, err := p.Lock(bg, "a", opts...)
	require.NoError(t, err)
	return l
}

// warm connects every node and waits until nothing is under way.
func warm(t *testing.T, p *Pool) {
	t.Helper()
	require.NoError(t, mustLock(t, p).Unlock(bg))
	synctest.Wait()
}

// nodeReasons collects the per-node reasons of an error.
func nodeReasons(t *testing.T, err error) map[string]string {
	t.Helper()
	var q *QuorumError
	require.ErrorAs(t, err, &q)
	m := map[string]string{}
	for _, n := range q.Nodes {
		m[n.Node] = n.Err.Error()
	}
	return m
}

func TestALockExcludesAndUnlockFrees(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		a, b := testPool(t, ps), testPool(t, ps)
		l := mustLock(t, a)
		synctest.Wait()
		require.Equal(t, 5, owners(ps, "lock:a", l.Token()))
		require.True(t, l.Valid())
		require.NoError(t, l.Err())

		_, err := b.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrHeld)
		require.NotErrorIs(t, err, ErrNoQuorum)
		require.Contains(t, err.Error(), "held by another for at most another 30s")

		require.NoError(t, l.Unlock(bg))
		require.False(t, l.Valid())
		require.ErrorIs(t, l.Err(), ErrUnlocked)
		require.ErrorIs(t, context.Cause(l.Context()), ErrUnlocked)
		select {
		case <-l.Lost():
			t.Fatal("Unlock is not a loss")
		default:
		}
		mustLock(t, b)
	})
}

func TestValidityIsTTLLessElapsedLessDrift(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps {
			p.delay = 40 * time.Millisecond
		}
		p := testPool(t, ps, WithTTL(10*time.Second), WithLease(10*time.Second))
		start := time.Now()
		l := mustLock(t, p)
		validity := 10*time.Second - 100*time.Millisecond - 2*time.Millisecond
		require.Equal(t, start.Add(validity), l.ValidUntil())

		time.Sleep(time.Until(l.ValidUntil()) - time.Nanosecond)
		require.True(t, l.Valid())
		time.Sleep(time.Nanosecond)
		require.False(t, l.Valid())
		require.ErrorIs(t, l.Err(), ErrLost)
		require.NotErrorIs(t, l.Err(), ErrNoQuorum)
		require.NotErrorIs(t, l.Err(), ErrHeld)
		<-l.Lost()
	})
}

func TestAHungMinorityCostsNothing(t *testing.T) { // FAULTS 1, 6
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps {
			p.delay = time.Millisecond
		}
		ps[0].hole, ps[1].hole = true, true
		p := testPool(t, ps, WithTTL(time.Hour))
		for range 20 {
			start := time.Now()
			l := mustLock(t, p)
			require.NoError(t, l.Extend(bg))
			require.NoError(t, l.Unlock(bg))
			// The first round also connects: handshake and check are three more round trips.
			require.LessOrEqual(t, time.Since(start), 8*time.Millisecond)
		}
		time.Sleep(time.Second)
		for _, n := range p.Stats().Nodes[:2] {
			require.Contains(t, n.Down, "no answer within 250ms")
			require.Zero(t, n.Queued)
		}
	})
}

func TestAHungMajorityEndsWithTheCtx(t *testing.T) { // FAULTS 2
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps[:3] {
			p.hole = true
		}
		p := testPool(t, ps)
		for _, lock := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := p.TryLock(ctx, "a"); return err },
			func(ctx context.Context) error { _, err := p.Lock(ctx, "a"); return err },
		} {
			ctx, cancel := context.WithTimeout(bg, 200*time.Millisecond)
			start := time.Now()
			err := lock(ctx)
			require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
			require.ErrorIs(t, err, ErrNoQuorum)
			require.NotErrorIs(t, err, ErrHeld)
			why := nodeReasons(t, err)
			for _, p := range ps[:3] {
				require.Contains(t, why[p.name], "answer")
			}
			cancel()
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(bg, 100*time.Millisecond)
		defer cancel()
		_, err := p.Lock(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, leftovers(ps))
	})
}

func TestACancelledAcquireIsBackAtOnceAndUndone(t *testing.T) { // FAULTS 3, 12
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, p := range ps[:3] {
			p.hole = true
		}
		p := testPool(t, ps)
		ctx, cancel := context.WithCancel(bg)
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := p.Lock(ctx, "a")
		require.Equal(t, 100*time.Millisecond, time.Since(start))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, ErrNoQuorum)
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestEachNodeSaysWhyItFailed(t *testing.T) { // FAULTS 5, 8, 51
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 7)
		ps[0].refuse = true
		ps[1].Errs["hello"], ps[1].Errs["time"] = "WRONGPASS invalid username-password pair", "NOAUTH Authentication required."
		ps[2].Errs["acquire"] = "OOM command not allowed when used memory > 'maxmemory'."
		p := testPool(t, ps)
		l := mustLock(t, p)
		require.NoError(t, l.Unlock(bg))

		ps[3].do(func() { ps[3].Raw["acquire"] = "$3\r\nwat\r\n" })
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		why := nodeReasons(t, err)
		require.Contains(t, why[ps[0].name], "connection refused")
		require.Contains(t, why[ps[1].name], "NOAUTH")
		require.Contains(t, why[ps[2].name], "OOM")
		require.Contains(t, why[ps[3].name], "no script of ours")
	})
}

func TestServerErrorsAreThatNodesReasonAndNoStorm(t *testing.T) { // FAULTS 51
	for _, reply := range []string{
		"OOM command not allowed", "MISCONF Redis is configured to save", "READONLY You can't write", "LOADING Redis is loading",
		"BUSY Redis is busy", "NOPERM no permissions", "MOVED 1 10.0.0.1:6379", "CLUSTERDOWN Hash slot not served", "ERR script failed",
	} {
		t.Run(strings.Fields(reply)[0], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				for _, p := range ps[:2] {
					p.Errs["acquire"] = reply
				}
				p := testPool(t, ps)
				l := mustLock(t, p)
				require.NoError(t, l.Unlock(bg))

				ps[2].do(func() { ps[2].Errs["acquire"] = reply })
				before := ps[2].count("acquire")
				_, err := p.TryLock(bg, "a")
				require.ErrorIs(t, err, ErrNoQuorum)
				require.Contains(t, nodeReasons(t, err)[ps[2].name], strings.Fields(reply)[0])
				require.Equal(t, before+1, ps[2].count("acquire"), "one request, no retries")
				synctest.Wait()
				require.Zero(t, leftovers(ps))
			})
		})
	}
}

func TestNoReplyMakesAPanic(t *testing.T) { // FAULTS 8
	for name, reply := range map[string]string{
		"nil": "$-1\r\n", "array": "*3\r\n:1\r\n:2\r\n:3\r\n", "huge bulk": "$9999999999\r\n", "huge array": "*999999999\r\n",
		"deep": strings.Repeat("*1\r\n", 10_000), "noise": "\x00\xff\x17\r\n", "negative": ":-77\r\n", "double": ",1.5\r\n",
		"map with array key": "%1\r\n*1\r\n:1\r\n:2\r\n", "key out of range": "*2\r\n:9\r\n:1\r\n", "endless line": "+" + strings.Repeat("x", 1<<20),
		"min int": ":-9223372036854775808\r\n", "denied without number": "*2\r\n:1\r\n$1\r\nx\r\n", "empty array": "*0\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				ps[0].Raw["acquire"], ps[0].Raw["renew"], ps[0].Raw["release"] = reply, reply, reply
				ps[1].Raw["time"] = reply
				p := testPool(t, ps)
				for range 3 {
					l := mustLock(t, p)
					require.NoError(t, l.Extend(bg))
					require.NoError(t, l.Unlock(bg))
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func undoPending(p *Pool) int {
	n := 0
	for _, s := range p.Stats().Nodes {
		n += s.UndoPending
	}
	return n
}

func TestLockWaitsForNodesToComeBack(t *testing.T) { // FAULTS 9
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.refuse = true
		}
		p := testPool(t, ps)
		time.AfterFunc(10*time.Second, func() {
			for _, x := range ps {
				x.restart()
			}
		})
		start := time.Now()
		mustLock(t, p)
		require.InDelta(t, 10, time.Since(start).Seconds(), 1.3)
	})
}

func TestALostReplyCountsAsOurs(t *testing.T) { // FAULTS 10
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		warm(t, p)
		for _, x := range ps {
			x.do(func() { x.Drop = "acquire" })
		}
		l, err := p.TryLock(bg, "a")
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 3, owners(ps, "lock:a", l.Token()))
		require.NoError(t, l.Unlock(bg))
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestAfterTheEnd(t *testing.T) { // FAULTS 18, 30
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		l := mustLock(t, p)
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, l.Unlock(bg))
		renews := ps[0].count("renew")
		require.ErrorIs(t, l.Extend(bg), ErrUnlocked)
		require.Equal(t, renews, ps[0].count("renew"))

		l = mustLock(t, p, WithLease(time.Second))
		time.Sleep(time.Second)
		require.ErrorIs(t, l.Unlock(bg), ErrLost)
		require.ErrorIs(t, l.Unlock(bg), ErrLost)
		require.ErrorIs(t, l.Extend(bg), ErrLost)
		require.Zero(t, l.Margin())
		mustLock(t, p)
	})
}

func TestGrantedAndFrozenPastTheTTLIsNoLock(t *testing.T) { // FAULTS 55
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		// A frozen process sees its replies and its timer late. Here the clock jumps between the votes and the count.
		c := &suspendClock{}
		c.hook = func() time.Duration {
			if leftovers(ps) >= 2 {
				return 2 * time.Second
			}
			return 0
		}
		p := newPoolAt(t, ps, c, WithTTL(time.Second))
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestMultiLockIsAllOrNothing(t *testing.T) { // FAULTS 45
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		b, err := p.Lock(bg, "b")
		require.NoError(t, err)
		_, err = p.TryMultiLock(bg, []string{"c", "a", "b", "c"})
		require.ErrorIs(t, err, ErrHeld)
		require.Contains(t, err.Error(), `held by another for at most another 30s: "b"`)
		synctest.Wait()
		for _, x := range ps {
			require.Empty(t, x.owner("lock:a"))
			require.Empty(t, x.owner("lock:c"))
		}
		require.NoError(t, b.Unlock(bg))

		l, err := p.MultiLock(bg, []string{"c", "a", "b", "c"})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, l.Resources())
		synctest.Wait()
		for _, key := range []string{"lock:a", "lock:b", "lock:c"} {
			require.Equal(t, 5, owners(ps, key, l.Token()))
		}
		for _, x := range ps[:3] { // one key on a majority
			x.do(func() { delete(x.Keys, "lock:b") })
		}
		time.Sleep(11 * time.Second)
		require.ErrorIs(t, l.Err(), ErrLost)
		require.ErrorIs(t, l.Err(), ErrHeld)
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestDoUnlocksAndEndsItsCtxOnLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithTTL(time.Second))
		work := errors.New("work")
		require.ErrorIs(t, p.Do(bg, "a", func(context.Context) error { return work }), work)
		synctest.Wait()
		require.Zero(t, leftovers(ps))

		err := p.Do(bg, "a", func(ctx context.Context) error {
			for _, x := range ps[:3] {
				x.freeze()
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, err, ErrNoQuorum)
		for _, x := range ps[:3] {
			x.thaw()
		}
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))

		ctx, cancel := context.WithCancel(bg)
		err = p.Do(ctx, "a", func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrLost)
	})
}

func TestAPanicInDoReleasesAndGoesOn(t *testing.T) { // FAULTS 27
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		require.PanicsWithValue(t, "boom", func() {
			_ = p.Do(bg, "a", func(context.Context) error { panic("boom") })
		})
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestOverlappingMultiLocksAllFinish(t *testing.T) { // FAULTS 44
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		for i, x := range ps {
			x.delay = time.Duration(i+1) * time.Millisecond
		}
		pools := []*Pool{testPool(t, ps), testPool(t, ps), testPool(t, ps)}
		sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"a", "b", "c", "a"}, {"c"}, {"b", "a"}}
		busy := map[string]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				set := sets[i%len(sets)]
				l, err := pools[i%len(pools)].MultiLock(bg, set)
				if !errors.Is(err, nil) {
					t.Error(err)
					return
				}
				touch := func(d int) {
					mu.Lock()
					defer mu.Unlock()
					for _, r := range l.Resources() {
						if busy[r] += d; busy[r] > 1 {
							t.Errorf("two holders of %s", r)
						}
					}
				}
				touch(1)
				time.Sleep(3 * time.Millisecond)
				touch(-1)
				if err := l.Unlock(bg); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		require.Zero(t, leftovers(ps))
	})
}

package redlock

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func places(ps []*peer) (n int) {
	for _, x := range ps {
		x.do(func() { n += x.Waiting() })
	}
	return n
}

func TestFairWaitersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		pools := []*Pool{testPool(t, ps), testPool(t, ps), testPool(t, ps)}
		for _, p := range pools {
			warm(t, p)
		}
		l := mustLock(t, pools[0])
		const n = 30
		order := make(chan int, n)
		for i := range n {
			go func() {
				l, err := pools[(i*i+i/7)%3].Lock(bg, "a", WithFair())
				require.NoError(t, err)
				order <- i
				time.Sleep(time.Millisecond)
				require.NoError(t, l.Unlock(bg))
			}()
			time.Sleep(5 * time.Millisecond)
		}
		before := counts(ps, "acquire")
		require.NoError(t, l.Unlock(bg))
		var got []int
		for range n {
			got = append(got, <-order)
		}
		require.True(t, slices.IsSorted(got), "%v", got)
		time.Sleep(time.Second)
		require.LessOrEqual(t, counts(ps, "acquire")-before, n*5*3/2, "only the first asks")
		synctest.Wait()
		require.Zero(t, places(ps))
		require.Zero(t, leftovers(ps))
	})
}

func TestADeadFairWaiterCostsAtMostOneTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithTTL(6*time.Second))
		warm(t, p)
		dead := p.quorum.draw(&wish{terms{ttl: 6 * time.Second, nodeTimeout: time.Second}, []string{"a"}, []string{"lock:a"}}, "lock:")
		p.quorum.join(dead, nobody{})
		p.quorum.nudge()
		time.Sleep(time.Millisecond) // of two that come in the same microsecond either may be the first
		require.Equal(t, 5, places(ps))
		start := time.Now()
		l, err := p.Lock(bg, "a", WithFair(), never)
		require.NoError(t, err)
		require.Greater(t, time.Since(start), 3*time.Second, "it was behind the dead one")
		require.LessOrEqual(t, time.Since(start), 6*time.Second)
		require.NoError(t, l.Unlock(bg))
		synctest.Wait()
		require.Zero(t, places(ps))
	})
}

func TestAFairWaiterThatGivesUpLeavesTheQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		l := mustLock(t, p)
		ctx, cancel := context.WithCancel(bg)
		ended := make(chan error)
		go func() { _, err := other.Lock(ctx, "a", WithFair()); ended <- err }()
		time.Sleep(100 * time.Millisecond)
		next := make(chan *Lock)
		go func() { l, err := p.Lock(bg, "a", WithFair(), never); require.NoError(t, err); next <- l }()
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 2*5, places(ps))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		synctest.Wait()
		require.Equal(t, 1*5, places(ps))
		require.Less(t, func() time.Duration {
			start := time.Now()
			require.NoError(t, l.Unlock(bg))
			l = <-next
			return time.Since(start)
		}(), 10*time.Millisecond)
		require.NoError(t, l.Unlock(bg))
		synctest.Wait()
		require.Zero(t, places(ps))
	})
}

// The order is on a majority: nodes that are away, restarted or differ do not decide it.
func TestFairQueuesSurviveNodesThatForgetThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		p, other := testPool(t, ps), testPool(t, ps)
		warm(t, other)
		l := mustLock(t, p)
		order := make(chan int, 2)
		for i := range 2 {
			go func() {
				l, err := []*Pool{other, p}[i].Lock(bg, "a", WithFair())
				require.NoError(t, err)
				order <- i
				require.NoError(t, l.Unlock(bg))
			}()
			time.Sleep(10 * time.Millisecond)
		}
		ps[0].refuseAll()
		for _, x := range ps[1:3] {
			x.do(func() { clear(x.Queues) })
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock(bg))
		require.Equal(t, 0, <-order)
		require.Equal(t, 1, <-order)
	})
}

func TestPlainCallersPassFairOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		p, other := testPool(t, ps), testPool(t, ps)
		warm(t, other)
		dead := p.quorum.draw(&wish{terms{ttl: 30 * time.Second, nodeTimeout: time.Second}, []string{"a"}, []string{"lock:a"}}, "lock:")
		p.quorum.join(dead, nobody{})
		p.quorum.nudge()
		time.Sleep(time.Millisecond)
		lockAndUnlock(t, other, "a")
	})
}

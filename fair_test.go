package redlock

import (
	"context"
	"slices"
	"sync"
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

// someTicket is for a place that nobody looks after.
func someTicket(p *Pool) *ticket {
	return p.quorum.draw(&wish{terms{ttl: 6 * time.Second, nodeTimeout: time.Second}, []string{"a"}, []string{"lock:a"}}, "lock:")
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
		dead := someTicket(p)
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
		dead := someTicket(p)
		p.quorum.join(dead, nobody{})
		p.quorum.nudge()
		time.Sleep(time.Millisecond)
		lockAndUnlock(t, other, "a")
	})
}

// Nobody has to let others go first who is behind them anyway.
func TestFairCallersOfSeveralProcessesDoNotPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		var all [9]int
		var wg sync.WaitGroup
		pools := []*Pool{testPool(t, ps), testPool(t, ps), testPool(t, ps)}
		for i := range all {
			warm(t, pools[i%3])
			wg.Go(func() { all[i], _ = loop(t, ctx, pools[i%3], WithFair()) })
		}
		wg.Wait()
		sum := 0
		for _, n := range all {
			sum += n
		}
		require.Greater(t, sum, 3000, "a handover takes well below a millisecond")
		require.Less(t, slices.Max(all[:])-slices.Min(all[:]), sum/9/10)
	})
}

// Two callers of which each is the first on two of four nodes would keep each other out.
func TestAFairCallThatTooFewNodesKnowKeepsNobodyOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps, away := newPeers(t, 4), newPeers(t, 4)
		slowly(ps)
		p, cutOff := testPool(t, ps), testPool(t, append(ps[:2:2], away[2:]...))
		warm(t, p)
		warm(t, cutOff)
		away[2].refuseAll()
		away[3].refuseAll()
		ctx, cancel := context.WithCancel(bg)
		ended := make(chan error, 1)
		go func() { _, err := cutOff.Lock(ctx, "a", WithFair()); ended <- err }()
		time.Sleep(5 * time.Second)
		slow := 0
		bounded, release := context.WithTimeout(bg, time.Minute)
		defer release()
		for range 50 {
			start := time.Now()
			l, err := p.Lock(bounded, "a", WithFair(), never)
			require.NoError(t, err)
			require.NoError(t, l.Unlock(bg))
			if time.Since(start) > 10*time.Millisecond {
				slow++
			}
			require.Less(t, time.Since(start), 50*time.Millisecond)
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, slow, 5, "while it tries again")
		cancel()
		require.ErrorIs(t, <-ended, ErrNoQuorum)
		synctest.Wait()
		require.Zero(t, places(ps))
	})
}

// The answer to a join and the message that it is our turn come on two connections.
func TestAMessageThatOvertakesTheAnswerToAJoinCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		for _, x := range []*Pool{p, other} { // the servers know all scripts now
			l, err := x.Lock(bg, "a", WithFair())
			require.NoError(t, err)
			require.NoError(t, l.Unlock(bg))
		}
		before := someTicket(p)
		p.quorum.join(before, nobody{})
		p.quorum.nudge()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithCancel(bg)
		go func() { _, err := other.Lock(ctx, "a", WithFair()); require.ErrorIs(t, err, context.Canceled) }()
		time.Sleep(100 * time.Millisecond)
		got := make(chan time.Duration)
		start := time.Now()
		go func() {
			l, err := other.Lock(bg, "a", WithFair(), never)
			require.NoError(t, err)
			got <- time.Since(start)
			require.NoError(t, l.Unlock(bg))
		}()
		synctest.Wait()
		ps[0].do(func() { ps[0].lag = 20 * time.Millisecond })
		ps[1].do(func() { ps[1].lag = 20 * time.Millisecond })
		ps[2].do(func() { ps[2].delay = 12 * time.Millisecond })
		ps[3].refuseAll()
		ps[4].refuseAll()
		cancel()
		time.Sleep(30 * time.Millisecond) // the second has joined behind p, and does not know yet
		require.Equal(t, 2*3, places(ps[:3]))
		p.quorum.leave(before) // two nodes say that it is its turn, then that it was not, and then the third does
		p.quorum.nudge()
		require.Less(t, <-got, 100*time.Millisecond)
	})
}

func TestOfTwoWordsAboutAPlaceTheLaterCounts(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, asOf   int64
		first2, asOf2 int64
		want          bool
	}{
		{"in order, first", 0, 10, 1, 11, true},
		{"in order, not any more", 1, 10, 0, 11, false},
		{"overtaken, first", 1, 11, 0, 10, true},
		{"overtaken, not any more", 0, 11, 1, 10, false},
		{"at the same moment", 1, 10, 0, 10, true},
		{"at the same moment, the other way round", 0, 10, 1, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e ear
			e.placed(c.first == 1, c.asOf)
			e.placed(c.first2 == 1, c.asOf2)
			require.Equal(t, c.want, e.first)
		})
	}
}

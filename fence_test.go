package redlock

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

// counters is what a peer's counter for a resource says; 0 if it never gave a fence.
func (p *peer) counter(resource string) uint64 {
	var text string
	p.do(func() { text = p.Fields[stripesOf([]string{resource})[0]] })
	f, _ := strconv.ParseUint(text, 10, 64)
	return f
}

func (p *peer) setCounter(resource string, f uint64) {
	p.do(func() { p.Fields[stripesOf([]string{resource})[0]] = fenceText(f) })
}

func TestFencesRiseFromOwnerToOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		pools := []*Pool{testPool(t, ps), testPool(t, ps), testPool(t, ps)}
		for i := range ps {
			ps[i].do(func() { ps[i].Clock = time.Duration(i-2) * time.Minute })
		}
		last := uint64(0)
		for i := range 300 {
			l, err := pools[i%3].Lock(context.Background(), "r")
			require.NoError(t, err)
			require.Greater(t, l.Fence(), last)
			last = l.Fence()
			require.NoError(t, l.Unlock(context.Background()))
		}
	})
}

func TestAFenceIsCarriedByTheNodesThatGranted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		ps[1].setCounter("r", uint64(time.Now().Add(time.Hour).UnixMicro()))
		ps[4].do(func() { ps[4].refuse = true })
		ps[4].cut()
		l, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		carry := 0
		for _, peer := range ps[:4] {
			if peer.owner("lock:r") == l.Token() && peer.counter("r") >= l.Fence() {
				carry++
			}
		}
		require.GreaterOrEqual(t, carry, 3)
	})
}

func lockAndUnlock(t *testing.T, p *Pool, resource string) {
	t.Helper()
	l, err := p.Lock(context.Background(), resource)
	require.NoError(t, err)
	require.NoError(t, l.Unlock(context.Background()))
}

// Nodes 4 and 5 are away, so node 1, which is ahead, has to be counted: the others are raised to its answer.
func TestAnswersThatDifferAreRaisedToTheHighestCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		for _, peer := range ps[3:] {
			peer.do(func() { peer.refuse = true })
			peer.cut()
		}
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		ps[0].setCounter("r", ahead)
		l, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		require.Equal(t, ahead+1, l.Fence())
		for _, peer := range ps[:3] {
			require.Equal(t, ahead+1, peer.counter("r"))
		}
		require.Equal(t, uint64(1), p.Stats().FencesRaised)
		require.NoError(t, l.Unlock(context.Background()))

		next, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		require.Greater(t, next.Fence(), ahead+1)
		require.Equal(t, uint64(1), p.Stats().FencesRaised, "all counters are alike now, and the proposal above them")
	})
}

func TestALockWhoseFenceIsNotConfirmedIsNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		ps[2].do(func() { ps[2].refuse = true })
		ps[2].cut()
		ps[0].setCounter("r", uint64(time.Now().Add(time.Hour).UnixMicro()))
		ps[1].do(func() { ps[1].Errs["renew"] = "MISCONF no" })
		_, err := p.TryLock(context.Background(), "r")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "redlock: acquire")
		require.ErrorContains(t, err, "MISCONF")
		time.Sleep(time.Second)
		require.Zero(t, leftovers(ps))
	})
}

// Between the grants and the raising a node may forget the key and grant it to another.
func TestAWaiterOutlivesADenialWhileItsFenceIsRaised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		slowly(ps)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		ps[2].refuseAll()
		ps[0].setCounter("r", uint64(time.Now().Add(time.Hour).UnixMicro()))
		ps[1].do(func() {
			ps[1].Voted = func(string, []string, time.Duration, uint64) {
				ps[1].Voted = nil
				go ps[1].do(func() {
					ps[1].Keys["lock:r"] = model.Value{S: "another", Expires: ps[1].Now().Add(time.Second)}
				})
			}
		})
		start := time.Now()
		lockAndUnlock(t, p, "r")
		require.Equal(t, uint64(1), p.Stats().FencesRaised)
		require.Greater(t, time.Since(start), time.Second, "it was denied first")
		time.Sleep(time.Second)
		require.Zero(t, leftovers(ps))
	})
}

// A node whose counter is years ahead would, counted, use up the numbers for everybody.
func TestACounterYearsAheadDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		ps[0].setCounter("r", maxFence-1)
		l, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		require.Less(t, l.Fence(), uint64(time.Now().Add(time.Minute).UnixMicro()))
		require.NoError(t, l.Unlock(context.Background()))

		for _, peer := range ps[:3] {
			peer.setCounter("r", maxFence)
		}
		_, err = p.TryLock(context.Background(), "r")
		require.ErrorContains(t, err, "used up")
	})
}

// The nearest of a new pool's nodes answers first. What it says must not become the fence, nor what the pool proposes
// from then on: that would be stored everywhere, and lock everybody out.
func TestANearNodeThatIsYearsAheadSpoilsNoNewPool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		lockAndUnlock(t, testPool(t, ps), "r")
		ps[0].setCounter("r", maxFence-10)
		for _, peer := range ps[1:] {
			peer.do(func() { peer.delay = 5 * time.Millisecond })
		}
		p := testPool(t, ps)
		for _, r := range []string{"r", "other", "other"} {
			l, err := p.Lock(context.Background(), r)
			require.NoError(t, err)
			require.Less(t, l.Fence(), uint64(time.Now().Add(time.Minute).UnixMicro()))
			require.NoError(t, l.Unlock(context.Background()))
		}
		lockAndUnlock(t, testPool(t, ps), "other")
	})
}

// A new pool proposes, too: otherwise a counter that was lost would be all that orders its first fence.
func TestTheFirstFenceOfANewPoolIsTheNodesTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		now := time.Now().UnixMicro()
		l, err := testPool(t, ps).Lock(context.Background(), "r")
		require.NoError(t, err)
		require.GreaterOrEqual(t, l.Fence(), uint64(now))
	})
}

func TestALockOfSeveralResourcesHasOneFenceAboveAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "a")
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for _, peer := range ps {
			peer.setCounter("b", ahead)
		}
		l, err := p.MultiLock(context.Background(), []string{"a", "b", "c"})
		require.NoError(t, err)
		require.Equal(t, ahead+1, l.Fence())
		synctest.Wait() // for the nodes that were not needed
		for _, peer := range ps {
			for _, r := range []string{"a", "b", "c"} {
				require.Equal(t, ahead+1, peer.counter(r))
			}
		}
	})
}

// A node that was away gets the lock later, and with it the fence: or its next owner could get a lower one there.
func TestToppedUpNodesAreRaisedToTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		ps[4].do(func() { ps[4].refuse = true })
		l, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		require.Zero(t, ps[4].counter("r"))
		ps[4].restart()
		time.Sleep(11 * time.Second)
		require.Equal(t, l.Token(), ps[4].owner("lock:r"))
		require.Equal(t, l.Fence(), ps[4].counter("r"))
	})
}

// The reply to the acquire is lost, and the resent one finds the key ours. Whether the first got as far as its counter,
// nobody knows: so it is a fence of its own, and no owner before has it.
func TestAResentAcquireGetsAFenceOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 1)
		p := testPool(t, ps)
		lockAndUnlock(t, p, "r")
		ps[0].do(func() { ps[0].Drop = "acquire" })
		ps[0].setCounter("r", uint64(time.Now().Add(time.Hour).UnixMicro()))
		l, err := p.Lock(context.Background(), "r")
		require.NoError(t, err)
		require.Equal(t, l.Fence(), ps[0].counter("r"))
		require.Equal(t, uint64(time.Now().Add(time.Hour).UnixMicro())+2, l.Fence())
	})
}

func FuzzFenceTextSortsAsNumbers(f *testing.F) {
	f.Add(uint64(9), uint64(10))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		a, b = a%(maxFence+1), b%(maxFence+1)
		require.Equal(t, a < b, fenceText(a) < fenceText(b))
		require.Equal(t, fmt.Sprintf("%016d", a), fenceText(a))
	})
}

// What another client computes must be the same for ever: the counters live longer than this program.
func TestStripesAreFixed(t *testing.T) {
	require.Equal(t, []string{"800"}, stripesOf([]string{"account:42"}))
	require.Equal(t, []string{"453"}, stripesOf([]string{""}))
}

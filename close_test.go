package redlock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCloseReleasesEverythingAndEndsWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := newOpenPool(t, ps)
		l := mustLock(t, p)
		waited := make(chan error)
		go func() { _, err := p.Lock(bg, "a"); waited <- err }()
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-waited, ErrClosed)
		require.ErrorIs(t, l.Err(), ErrUnlocked)
		require.Zero(t, leftovers(ps))
		_, err := p.Lock(bg, "a")
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, p.Close())
	})
}

func TestUnlockAfterCloseKnowsThatItIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newOpenPool(t, newPeers(t, 3))
		l := mustLock(t, p)
		require.NoError(t, p.Close())
		require.NoError(t, l.Unlock(bg))
		require.ErrorIs(t, l.Extend(bg), ErrUnlocked)
	})
}

func TestAnObserverMayBlockOrCloseThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		block := make(chan struct{})
		p := newOpenPool(t, newPeers(t, 3), WithObserver(Observer{Released: func(Event) { <-block }}))
		require.NoError(t, mustLock(t, p).Unlock(bg))
		start := time.Now()
		require.NoError(t, p.Close())
		require.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
		close(block)

		closed := make(chan error, 1)
		var q *Pool
		q = newOpenPool(t, newPeers(t, 3), WithObserver(Observer{Released: func(Event) { closed <- q.Close() }}))
		require.NoError(t, mustLock(t, q).Unlock(bg))
		require.NoError(t, <-closed)
	})
}

func TestCloseTakesAtMostTwoNodeTimeouts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := newOpenPool(t, ps)
		mustLock(t, p)
		synctest.Wait()
		for _, x := range ps {
			x.freeze()
		}
		start := time.Now()
		time.Sleep(100 * time.Millisecond)
		err := p.Close()
		require.ErrorContains(t, err, "5 releases unconfirmed")
		require.LessOrEqual(t, time.Since(start), 600*time.Millisecond)
	})
}

func TestCloseReleasesWhatIsBeingRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		for range 5 {
			p := newOpenPool(t, ps, WithTTL(9*time.Second))
			var locks []*Lock
			for i := range 300 {
				l, err := p.Lock(bg, fmt.Sprint("r", i))
				require.NoError(t, err)
				locks = append(locks, l)
			}
			time.Sleep(2625*time.Millisecond + time.Duration(len(locks)))
			for p.Stats().Renewed == 0 {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, p.Close())
			for _, l := range locks {
				require.ErrorIs(t, l.Err(), ErrUnlocked)
			}
			require.Zero(t, leftovers(ps))
		}
	})
}

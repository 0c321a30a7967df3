package redlock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAHolderFrozenPastItsTTLKnowsAtTheFirstCall(t *testing.T) { // FAULTS 24
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		c := &suspendClock{}
		p := newPoolAt(t, ps, c)
		l := mustLock(t, p)
		time.Sleep(time.Second)
		token := l.Token()
		// The freeze: no goroutine of the pool ran, time went on, a rival came and went.
		c.jump(40 * time.Second)
		for _, x := range ps {
			x.do(func() { delete(x.Keys, "lock:a") })
		}
		require.False(t, l.Valid())
		require.ErrorIs(t, l.Err(), ErrLost)
		require.ErrorIs(t, l.Extend(bg), ErrLost)
		time.Sleep(time.Minute)
		require.False(t, l.Valid())
		require.Zero(t, owners(ps, "lock:a", token), "never taken again")
	})
}

func TestASuspendedMachineLosesItsLocksWithinATick(t *testing.T) { // FAULTS 39
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		c := &suspendClock{}
		p := newPoolAt(t, ps, c)
		l := mustLock(t, p)
		time.Sleep(time.Second)
		c.jump(time.Hour)
		require.False(t, l.Valid())
		require.False(t, l.ValidUntil().After(time.Now()))

		l = mustLock(t, p)
		time.Sleep(time.Second)
		ctx := l.Context()
		c.jump(20 * time.Second)
		require.True(t, l.Valid())
		require.Less(t, time.Until(l.ValidUntil()), 10*time.Second, "a suspend within the TTL shortens it")
		time.Sleep(15 * time.Second)
		require.True(t, l.Valid(), "and the watchdog goes on")
		c.jump(time.Minute)
		woken := time.Now()
		<-ctx.Done()
		require.LessOrEqual(t, time.Since(woken), time.Second)
	})
}

func TestASteppedWallClockNeverLengthensALock(t *testing.T) { // FAULTS 39
	// elsewhere than on Linux the second clock is the wall clock, which may be stepped either way
	bubble(t, func(t *testing.T) {
		for _, step := range []time.Duration{-time.Hour, time.Hour} {
			c := &suspendClock{}
			p := newPoolAt(t, newPeers(t, 3), c, WithLease(10*time.Second))
			l := mustLock(t, p)
			c.jump(step)
			if step < 0 {
				require.True(t, l.Valid())
				time.Sleep(10 * time.Second)
			}
			require.False(t, l.Valid())
		}
	})
}

func TestAClockSteppedBackAndForthCostsNothing(t *testing.T) { // FAULTS 39
	bubble(t, func(t *testing.T) {
		c := &suspendClock{}
		var readings atomic.Int64
		c.hook = func() time.Duration { readings.Add(1); return 0 }
		p := newPoolAt(t, newPeers(t, 3), c)
		for _, step := range []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour, 60 * time.Millisecond, -60 * time.Millisecond} {
			c.jump(step)
			time.Sleep(2 * time.Second)
			l := mustLock(t, p)
			before := readings.Load()
			time.Sleep(25 * time.Second)
			require.True(t, l.Valid(), "after a step of %v", step)
			require.Less(t, readings.Load()-before, int64(200), "the watchdog must not spin")
			require.NoError(t, l.Unlock(bg))
		}
	})
}

package redlock

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kernel is a machine's three clocks.
type kernel struct {
	mono, slept, set time.Duration
	gap, late        time.Duration // before the wall clock is read, and before CLOCK_BOOTTIME is: the scheduler's
	reads            int           // of CLOCK_BOOTTIME
}

func (k *kernel) clock() *bootClock {
	return &bootClock{
		boot: func() time.Duration {
			k.reads++
			k.mono += k.late
			return k.mono + k.slept
		},
		others: func() (mono, wall time.Duration) {
			mono = k.mono
			k.mono += k.gap
			return mono, k.mono + k.slept + k.set
		},
	}
}

func TestASuspendShowsAtTheNextReading(t *testing.T) {
	k := &kernel{}
	c := k.clock()
	require.Zero(t, c.read())
	for _, slept := range []time.Duration{100 * time.Millisecond, time.Hour, 1000 * time.Hour} {
		k.mono += time.Second
		k.slept += slept
		require.Equal(t, k.mono+k.slept, c.read())
	}
}

func TestTheSystemCallIsMadeOnlyAfterAStep(t *testing.T) {
	k := &kernel{}
	c := k.clock()
	c.read()
	k.reads = 0
	for range 1000 {
		k.mono += time.Second
		c.read()
	}
	require.Zero(t, k.reads)
	k.set -= time.Hour
	c.read()
	c.read()
	require.Equal(t, 1, k.reads)
}

// Whatever the scheduler, the operator and the lid of the machine do: no reading is off by more than the tolerance, but
// for what passed during the reading itself.
func TestTheBootClockIsRightWhateverComesBetween(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	k := &kernel{}
	c := k.clock()
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	for range 100_000 {
		k.mono += upTo(10 * time.Millisecond)
		k.gap, k.late = 0, 0
		switch rng.IntN(10) {
		case 0:
			k.slept += upTo(time.Minute)
		case 1:
			k.set += upTo(time.Hour) - 30*time.Minute
		case 2:
			k.gap = upTo(20 * time.Millisecond)
		case 3:
			k.gap, k.late = upTo(2*bootTolerance), upTo(2*bootTolerance)
		case 5:
			k.set += time.Second
			k.late = upTo(20 * time.Millisecond)
		case 4: // slept, and the wall clock set back by the same, but for a little
			d := upTo(time.Second)
			k.slept += d
			k.set -= d + 2*bootTolerance
		}
		before := k.mono + k.slept
		got := c.read()
		require.GreaterOrEqual(t, got, before-2*bootTolerance)
		require.LessOrEqual(t, got, k.mono+k.slept+2*bootTolerance)
	}
}

func TestTheRealBootClockAgreesWithTheKernel(t *testing.T) {
	c := newBootClock()
	start := readBootTime() - c()
	for range 1000 {
		before := readBootTime()
		got := c() + start
		after := readBootTime()
		require.GreaterOrEqual(t, got, before-time.Millisecond)
		require.LessOrEqual(t, got, after+time.Millisecond)
	}
}

func BenchmarkNow(b *testing.B) {
	b.Run("now", func(b *testing.B) {
		for c := newClock(); b.Loop(); {
			c.now()
		}
	})
	b.Run("CLOCK_BOOTTIME", func(b *testing.B) {
		for b.Loop() {
			readBootTime()
		}
	})
}

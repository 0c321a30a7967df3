package redlock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestValidityTable(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		d             drift
		ttl, validity time.Duration
	}{
		"default":               {drift{0.01, 2 * time.Millisecond}, 30 * time.Second, 29698 * time.Millisecond},
		"no drift":              {drift{}, time.Second, time.Second},
		"floor alone":           {drift{0, 5 * time.Millisecond}, time.Second, 995 * time.Millisecond},
		"a fifth":               {drift{0.2, 0}, 10 * time.Second, 8 * time.Second},
		"rounded against us":    {drift{0.01, 0}, 101, 99}, // 1.01 ns are taken off as 2
		"nothing left":          {drift{0.01, 2 * time.Millisecond}, 2 * time.Millisecond, -20 * time.Microsecond},
		"centuries":             {drift{0.01, 2 * time.Millisecond}, 200 * year, 200*year - 2*year - 2*time.Millisecond},
		"floor of all eternity": {drift{0.01, math.MaxInt64}, time.Hour, time.Hour - math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.validity, c.d.validity(c.ttl)) })
	}
}

func TestElapsedTakesTheClockThatSawMore(t *testing.T) {
	a := instant{mono: 10, boot: 100}
	for name, c := range map[string]struct {
		b    instant
		want time.Duration
	}{
		"both run":                       {instant{15, 105}, 5},
		"suspended: the second ran on":   {instant{15, 1105}, 1005},
		"stepped back: the first counts": {instant{15, -5000}, 5},
		"before":                         {instant{5, 95}, -5},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, elapsed(a, c.b)) })
	}
}

func TestMillisRoundUp(t *testing.T) {
	require.EqualValues(t, 1, millis(1))
	require.EqualValues(t, 1, millis(time.Millisecond))
	require.EqualValues(t, 2, millis(time.Millisecond+1))
	require.EqualValues(t, 9223372036855, millis(math.MaxInt64))
}

func TestLatestSecond(t *testing.T) {
	s := serverClock{micros: 1_000_000_000_000, asked: time.Minute} // second 1 000 000, read at minute 1
	for name, c := range map[string]struct {
		start, timeout time.Duration
		want           int64
	}{
		"at the reading":         {time.Minute, 250 * time.Millisecond, 1_000_002},
		"on the second":          {time.Minute, time.Second, 1_000_002},
		"later":                  {time.Minute + 10*time.Second, 250 * time.Millisecond, 1_000_012},
		"began before it":        {time.Minute - 100*time.Millisecond, 250 * time.Millisecond, 1_000_002},
		"a node timeout of days": {time.Minute, 48 * time.Hour, 1_172_801},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, s.latestSecond(c.start, c.timeout)) })
	}
}

func TestUntilPastASecond(t *testing.T) {
	s := serverClock{micros: 1_000_000_500_000, asked: time.Minute}
	require.Equal(t, 500*time.Millisecond, s.untilPast(1_000_000, time.Minute))
	require.Equal(t, 2500*time.Millisecond, s.untilPast(1_000_002, time.Minute))
	require.Zero(t, s.untilPast(999_999, time.Minute))
	require.Zero(t, s.untilPast(1_000_000, time.Minute+time.Second))
	require.Positive(t, s.untilPast(math.MaxInt64/1_000_000-1, time.Minute))
}

func TestMarginFormula(t *testing.T) {
	for _, c := range []struct{ g, need, n, want int }{
		{3, 3, 5, 0}, {4, 3, 5, 1}, {5, 3, 5, 2}, {4, 4, 5, 2}, {5, 5, 5, 4}, {2, 2, 3, 0}, {3, 2, 3, 1}, {3, 3, 4, 1}, {1, 1, 1, 0}, {0, 3, 5, 0},
	} {
		require.Equal(t, c.want, margin(c.g, c.need, c.n), "%+v", c)
	}
}

// A lock never outlives what the slowest node that counts could promise: whatever the TTL, the factor and the clocks
// within it, validity counted on our clock ends before TTL counted on a node's.
func FuzzValidityEndsBeforeTheNodeForgets(f *testing.F) {
	f.Add(int64(30*time.Second), 0.01, int64(2*time.Millisecond), 0.99)
	f.Add(int64(math.MaxInt64), 0.2, int64(0), 1.0)
	f.Add(int64(4*time.Millisecond), 0.0, int64(0), 0.0)
	f.Fuzz(func(t *testing.T, ttl int64, factor float64, floor int64, share float64) {
		if ttl <= 0 || floor < 0 || !(factor >= 0 && factor <= maxFactor) || !(share >= 0 && share <= 1) {
			return // options refuse it
		}
		d := drift{factor, time.Duration(floor)}
		v := d.validity(time.Duration(ttl))
		require.LessOrEqual(t, v, time.Duration(ttl))
		if v <= 0 {
			return
		}
		// A node whose clock runs fast by a part of the factor forgets after ttl/(1+rate) of our time.
		rate := factor * share
		forgets := float64(ttl) / (1 + rate)
		require.LessOrEqual(t, float64(v), forgets*(1+1e-12))
		require.GreaterOrEqual(t, millis(time.Duration(ttl)), ttl/int64(time.Millisecond))
	})
}

// Whatever is confirmed in whatever order, the deadline only moves forward, is that of the majority-th latest
// confirmation, and never moves once it has passed.
func FuzzDeadlineFollowsTheMajority(f *testing.F) {
	f.Add([]byte{0, 1, 2, 10, 11, 12, 3, 4})
	f.Add([]byte{255, 3, 0, 0, 9})
	f.Add([]byte{63, 0, 63, 0, 1, 1, 1, 2, 1, 3, 1, 4}) // past the deadline, then all confirm
	f.Fuzz(func(t *testing.T, script []byte) {
		const n, majority = 5, 3
		h := newHold(terms{ttl: 100, validity: 99}, []string{"a"}, []string{"a"}, "token", n, instant{})
		h.phase = held
		now := time.Duration(0)
		for i := range majority {
			h.apply(i, vote{kind: voteGrant}, instant{}, false)
		}
		for i := 0; i+1 < len(script); i += 2 {
			now += time.Duration(script[i] % 64)
			at := now - time.Duration(script[i]/64)
			kind := []voteKind{voteGrant, voteGrant, voteNone, voteRefill, voteDenied, voteLate}[script[i+1]/8%6]
			before := h.from.mono
			over := h.left(instant{now, now}) <= 0
			h.apply(int(script[i+1])%n, vote{kind: kind}, instant{max(0, at), max(0, at)}, false)
			h.advance(majority, func() instant { return instant{now, now} })
			require.GreaterOrEqual(t, h.from.mono, before)
			if over {
				require.Equal(t, before, h.from.mono)
			}
			newer := 0
			for _, s := range h.nodes {
				if s.votes && s.at.mono >= h.from.mono {
					newer++
				}
			}
			if h.from.mono > before {
				require.GreaterOrEqual(t, newer, majority)
			}
		}
	})
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// reading is a sample taken at the given time of ours, in a round trip of the given width, of a clock that is ahead.
func reading(at, width, ahead time.Duration) sample {
	base := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	half := func(d time.Duration) instant { return instant{mono: d, boot: d} }
	return sample{micros: base.Add(at + ahead).UnixMicro(), asked: half(at - width/2), heard: half(at + width/2)}
}

func TestJumpIsWhatRateAndRoundTripsDoNotExplain(t *testing.T) {
	d := drift{factor: 0.01, floor: ms(2)} // of a second: 10 ms, 2 ms, and 1 ms of grain
	for name, row := range map[string]struct {
		width time.Duration // of both readings
		ahead time.Duration
		jump  time.Duration
		says  bool
	}{
		"no difference":               {0, 0, 0, true},
		"within the allowance":        {0, ms(13), 0, true},
		"beyond it":                   {0, ms(14), ms(14), true},
		"behind, within it":           {0, -ms(13), 0, true},
		"behind, beyond it":           {0, -ms(14), -ms(14), true},
		"explained by the round trip": {ms(10), ms(23), 0, true},
		"not explained by it":         {ms(10), ms(24), ms(14), true},
		"an hour":                     {ms(1), time.Hour, time.Hour - ms(1), true},
		"too wide to tell":            {ms(20), time.Hour, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, ok := d.jump(reading(0, row.width, 0), reading(time.Second, row.width, row.ahead))
			require.Equal(t, row.says, ok)
			require.InDelta(t, row.jump, j, float64(ms(1)))
		})
	}
}

// A clock whose readings are honest is never accused, whatever the round trips are and within its rate.
func FuzzAnHonestClockDoesNotJump(f *testing.F) {
	f.Add(int64(1e9), int64(1e6), int64(2e6), 0.5, 0.5)
	f.Fuzz(func(t *testing.T, interval, width1, width2 int64, at1, at2 float64) {
		d := drift{factor: 0.01, floor: ms(2)}
		inside := func(v int64, most time.Duration) time.Duration { return time.Duration(v) & (1<<62 - 1) % (most + 1) }
		gap, w1, w2 := inside(interval, time.Hour)+1, inside(width1, time.Minute), inside(width2, time.Minute)
		share := func(x float64) float64 {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return 0
			}
			return math.Abs(x) - math.Floor(math.Abs(x))
		}
		for _, rate := range []float64{-0.0099, 0, 0.0099} {
			read := func(start, width time.Duration, x float64) sample {
				when := start + time.Duration(share(x)*float64(width))
				return sample{micros: 1e15 + time.Duration((1+rate)*float64(when)).Microseconds(),
					asked: instant{start, start}, heard: instant{start + width, start + width}}
			}
			a, b := read(0, w1, at1), read(w1+gap, w2, at2)
			j, _ := d.jump(a, b)
			require.Zero(t, j)
		}
	})
}

func TestARateNeedsTimeToShow(t *testing.T) {
	_, _, ok := rate(reading(0, 0, 0), reading(ms(900), 0, 0))
	require.False(t, ok)
	share, bound, ok := rate(reading(0, ms(2), 0), reading(10*time.Second, ms(2), ms(800)))
	require.True(t, ok)
	require.InDelta(t, 0.08, share, 1e-9)
	require.InDelta(t, 0.0002, bound, 1e-9)
}

func TestBaselinesShowStepsAndRates(t *testing.T) {
	d := drift{factor: 0.01, floor: ms(2)}
	var b baselines
	ahead := time.Duration(0)
	for at := time.Duration(0); at < 20*time.Second; at += ms(250) { // 1.1 %: too little for a second, not for four
		j, _ := b.compare(d, reading(at, 0, ahead), time.Minute)
		if at <= 3*time.Second {
			require.Zero(t, j, at)
		} else if j != 0 {
			return
		}
		b.keep(d, reading(at, 0, ahead), time.Second, time.Minute)
		ahead += ms(250) * 11 / 1000
	}
	t.Fatal("a rate of 1.1 % was never seen")
}

func TestAReadingOlderThanTheGuardIsNoBaseline(t *testing.T) {
	d := drift{factor: 0.01, floor: ms(2)}
	var b baselines
	b.keep(d, reading(0, 0, 0), time.Second, time.Minute)
	j, age := b.compare(d, reading(time.Minute+1, 0, time.Hour), time.Minute)
	require.Zero(t, j)
	require.Zero(t, age)
	j, _ = b.compare(d, reading(59*time.Second, 0, time.Hour), time.Minute)
	require.Positive(t, j)
}

func TestAWideReadingIsKeptOnlyForWantOfABetterOne(t *testing.T) {
	d := drift{factor: 0.01, floor: ms(2)}
	var b baselines
	b.keep(d, reading(0, ms(1), 0), time.Second, time.Minute)
	b.keep(d, reading(2*time.Second, ms(100), 0), time.Second, time.Minute)
	require.Equal(t, reading(0, ms(1), 0), b.near[0])
	b.keep(d, reading(2*time.Minute, ms(100), 0), time.Second, time.Minute)
	require.Equal(t, reading(2*time.Minute, ms(100), 0), b.near[0])
}

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheTimeLeftDecidesWhatIsDue(t *testing.T) {
	const grace = 900 * time.Millisecond
	for _, c := range []struct {
		name string
		left time.Duration
		step step
		wait time.Duration
	}{
		{"far away, looks again every second", time.Hour, let, pollLease},
		{"a little more than a grace", grace + 10*time.Millisecond, let, 10 * time.Millisecond},
		{"exactly a grace", grace, ask, 600 * time.Millisecond},
		{"a little more than a third", 301 * time.Millisecond, ask, time.Millisecond},
		{"exactly a third", 300 * time.Millisecond, kill, reKill},
		{"over", 0, kill, reKill},
		{"long over", -time.Hour, kill, reKill},
	} {
		t.Run(c.name, func(t *testing.T) {
			step, wait := due(c.left, grace)
			require.Equal(t, c.step, step)
			require.Equal(t, c.wait, wait)
		})
	}
}

func TestTimesThatCannotWorkAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *runner
		want string // "" if they work
	}{
		{"defaults", &runner{ttl: defaultTTL}, ""},
		{"tiny TTL", &runner{ttl: 50 * time.Millisecond}, "--ttl"},
		{"negative wait", &runner{ttl: defaultTTL, bounded: true, wait: -1}, "--wait"},
		{"grace of nothing", &runner{ttl: defaultTTL, graced: true}, "--grace"},
		{"grace beyond half of the TTL", &runner{ttl: time.Second, graced: true, grace: 501 * time.Millisecond}, "--grace"},
		{"grace of half of the TTL", &runner{ttl: time.Second, graced: true, grace: 500 * time.Millisecond}, ""},
		{"grace as long as max-hold", &runner{ttl: time.Minute, limited: true, maxHold: time.Second, graced: true, grace: time.Second}, "--max-hold"},
		{"no time to hold", &runner{ttl: time.Minute, limited: true}, "--max-hold"},
		{"default grace fits a short max-hold", &runner{ttl: time.Minute, limited: true, maxHold: time.Second}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.r.checkTimes()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestDefaultGraceIsAThirdOfTheTTLAndAtMostFiveSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		3 * time.Second:  time.Second,
		30 * time.Second: 5 * time.Second,
	} {
		r := runner{ttl: ttl}
		require.NoError(t, r.checkTimes())
		require.Equal(t, want, r.grace)
	}
}

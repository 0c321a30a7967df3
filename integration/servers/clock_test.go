package servers

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fast is how far ahead of this machine's a server's clock is.
func fast(t *testing.T, s *Server) time.Duration {
	t.Helper()
	at, err := s.Client().Time(t.Context()).Result()
	require.NoError(t, err)
	return time.Until(at)
}

const near = 0.2 // seconds that a round trip may take

func TestASteppedClockShowsInTimeAndInExpiry(t *testing.T) {
	onEvery(t, 2, func(t *testing.T, set *Set) {
		s, c := set.Server(0), set.Server(0).Client()
		require.InDelta(t, 0, fast(t, s).Seconds(), near)
		require.NoError(t, c.Set(t.Context(), "k", "v", time.Minute).Err())

		s.StepClock(-time.Hour)
		require.InDelta(t, -3600, fast(t, s).Seconds(), near)
		require.InDelta(t, 3660, c.PTTL(t.Context(), "k").Val().Seconds(), near)
		s.StepClock(time.Hour + 30*time.Second)
		require.InDelta(t, 30, fast(t, s).Seconds(), near)
		require.InDelta(t, 30, c.PTTL(t.Context(), "k").Val().Seconds(), near)
		s.StepClock(31 * time.Second)
		require.Zero(t, c.Exists(t.Context(), "k").Val())
		require.InDelta(t, 0, fast(t, set.Server(1)).Seconds(), near, "the others' are their own")

		s.Restart()
		require.InDelta(t, 61, fast(t, s).Seconds(), near, "it is the machine's clock that was set")
	}, WithClock())
}

func TestAFastClockRunsAheadAndStaysThere(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		if set.Provider() == Embedded {
			t.Skip("an embedded node's clock runs at the machine's rate")
		}
		s, c := set.Server(0), set.Server(0).Client()
		s.ClockRate(4)
		began := time.Now()
		require.NoError(t, c.Set(t.Context(), "k", "v", 2*time.Second).Err())
		for c.Exists(t.Context(), "k").Val() == 1 {
			require.Less(t, time.Since(began), time.Second, "keys die by the fast clock")
			<-time.After(10 * time.Millisecond)
		}
		require.Greater(t, time.Since(began), 350*time.Millisecond)
		s.ClockRate(0)
		ahead := fast(t, s)
		require.InDelta(t, 4*time.Since(began).Seconds(), ahead.Seconds(), near)
		<-time.After(100 * time.Millisecond)
		require.InDelta(t, ahead.Seconds(), fast(t, s).Seconds(), 0.05)
	}, WithClock())
}

func TestAProcessWithoutAClockOfItsOwnCannotBeStepped(t *testing.T) {
	if !slices.Contains(Providers(t), Processes) {
		t.Skip("needs a redis-server")
	}
	s := Start(t, 1, WithProvider(Processes)).Server(0)
	require.Contains(t, failure(s, func(s *Server) { s.StepClock(time.Hour) }), "WithClock")
	require.InDelta(t, 0, fast(t, s).Seconds(), near)
}

func TestAMissingCompilerIsNamed(t *testing.T) {
	t.Setenv("PATH", "")
	require.ErrorContains(t, clockMissing(), "WithClock")
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, clockMissing(), "apt-get install gcc")
	}
}

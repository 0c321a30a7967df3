package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// noticed is how long a wrong clock may stay unnoticed: an idle server is asked at least each third of the guard.
// A rate may begin right before the first of two.
const noticed = 2*guard/3 + 2*slack

// clocked are processes whose clocks can be set, for the whole run like those of the fleet.
var clocked *servers.Set

// onClocks runs a claim on every kind of server whose clock can be set. It is set right again behind each.
func onClocks(t *testing.T, claim func(t *testing.T, r *rig)) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		t.Run(string(p), func(t *testing.T) {
			switch p {
			case servers.Containers:
				t.Skip("a container's clock is the machine's")
			case servers.Embedded:
				claim(t, rigOn(t, servers.Start(t, 5, servers.WithProvider(p))).setRight())
			default:
				keeper.TB = t
				if clocked == nil {
					clocked = servers.Start(keeper, 5, servers.WithProvider(p), servers.WithClock())
				}
				claim(t, rigOn(t, clocked).setRight())
			}
		})
	}
}

// setRight has the clocks set right once the pools of the test are closed.
func (r *rig) setRight() *rig {
	r.last(func() {
		for i := range r.Len() {
			s := r.Server(i)
			if r.Provider() == servers.Processes {
				s.ClockRate(0)
			}
			at, err := s.Client().Time(bg).Result()
			require.NoError(r.t, err)
			s.StepClock(time.Until(at) * -1)
			require.NoError(r.t, s.Client().FlushAll(bg).Err(), "keys that would live for another hour")
		}
	})
	return r
}

func (r *rig) step(d time.Duration, indices ...int) {
	r.each(indices, func(s *servers.Server) { s.StepClock(d) })
}

// A holds the lock on all, B has been there before. Whoever notices first takes the server's vote for everybody.
func TestAWrongClockCostsAVoteForAGuardAndNoLock(t *testing.T) { // FAULTS 32
	wrongs := map[string]func(s *servers.Server){
		"an hour ahead":  func(s *servers.Server) { s.StepClock(time.Hour) },
		"an hour behind": func(s *servers.Server) { s.StepClock(-time.Hour) },
		"20 ms ahead":    func(s *servers.Server) { s.StepClock(20 * time.Millisecond) },
		"8 % fast":       func(s *servers.Server) { s.ClockRate(0.08) },
	}
	onClocks(t, func(t *testing.T, r *rig) {
		var seen recorder // of every pool, for any of them may be the first to notice
		observe := redlock.WithObserver(seen.observer())
		for name, wrong := range wrongs {
			rated := strings.Contains(name, "%")
			if rated && r.Provider() == servers.Embedded {
				continue // its clock runs at the machine's rate
			}
			before := len(seen.of("clock_stepped"))
			ps := r.ready(2, observe)
			l := mustLock(t, ps[0])
			r.owned(l, 5, slack)

			// 1. It is noticed, and no client counts on that server any more.
			began := time.Now()
			wrong(r.Server(1))
			eventually(t, noticed, name+" is noticed", func() error { return is(strings.Contains(r.marker(1), " nonce=")) })
			if rated {
				r.Server(1).ClockRate(0)
			}
			for _, p := range []*redlock.Pool{ps[0], ps[1], r.guarded(observe)} {
				require.False(t, r.granted(p, "b")[1] && time.Since(began) < guard, name)
			}

			// 2. For a guard. The rival does not get in, whether that server has forgotten the lock or not.
			r.heals(1, began, func() {
				_, err := ps[1].TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrHeld, name)
				require.NoError(t, l.Err(), name)
			})

			// 3. Then all is as before.
			eventually(t, patience, name+" is over", func() error {
				return is(allSteady(ps[0]) == nil && allSteady(ps[1]) == nil && l.Margin() == 2)
			})
			require.NoError(t, l.Unlock(bg))
			told := seen.of("clock_stepped")[before:]
			require.NotEmpty(t, told, name)
			for _, ev := range told {
				require.Equal(t, r.Server(1).Addr(), ev.Node, name)
			}
		}
	})
}

// By the server's own clock its guard is over at once.
func TestAClockSetForwardDoesNotEndTheGuard(t *testing.T) { // FAULTS 60
	onClocks(t, func(t *testing.T, r *rig) {
		p := r.ready(1)[0]
		r.forgets(2, func(s *servers.Server) {
			s.Restart()
			s.StepClock(2 * guard)
		}, func() { require.False(t, r.granted(p, "b")[2] && !r.steady(2)) })
		eventually(t, patience, "every node has a vote", func() error { return allSteady(p) })
	})
}

// To a machine that was paused, clocks and all, every server seems to have been set forward alike.
func TestClocksThatStepAlikeMeanThatOursIsWrong(t *testing.T) { // FAULTS 62
	const ttl, pause = 1200 * time.Millisecond, 300 * time.Millisecond
	onClocks(t, func(t *testing.T, r *rig) {
		for _, jump := range []time.Duration{pause, -pause} {
			var seen recorder
			p := r.ready(1, redlock.WithTTL(ttl), redlock.WithRestartGuard(ttl), redlock.WithObserver(seen.observer()),
				redlock.WithRetry(10*time.Millisecond, 50*time.Millisecond))[0]
			kept := mustLock(t, p)
			leased, err := p.Lock(bg, "leased", redlock.WithLease(ttl))
			require.NoError(t, err)
			r.owned(kept, 5, slack)
			r.owned(leased, 5, slack)
			until := deadline(leased)

			r.step(jump, all...)
			eventually(t, ttl/3+nodeTimeout+2*slack, "it is noticed", func() error { return is(len(seen.of("clock_stepped")) > 0) })
			noticed := time.Now()
			require.Empty(t, seen.of("clock_stepped")[0].Node, "ours, and nobody else's")
			require.InDelta(t, max(0, jump).Seconds(), until.Sub(deadline(leased)).Seconds(), 0.05, "%v: its deadline is earlier", jump)
			_, err = p.TryLock(bg, "b")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "our own clock was wrong: no new lock for another")
			l, err := p.Lock(bg, "b")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(noticed), ttl-2*slack, "%v: not for a guard", jump)
			require.NoError(t, l.Unlock(bg))
			require.ErrorIs(t, leased.Err(), redlock.ErrLost)
			require.NoError(t, kept.Err(), "%v", jump)
			for i := range r.Len() {
				require.True(t, r.steady(i), "nobody is marked")
			}
			require.NoError(t, kept.Unlock(bg))
			for _, ev := range seen.of("clock_stepped") { // two, where the servers were not set at one moment
				require.Empty(t, ev.Node)
			}
		}
	})
}

// What is within the allowance of 1 % costs nothing, and is shown.
func TestStatsShowHowAClockIsOffAndHowFastItRuns(t *testing.T) { // FAULTS 32
	const off, share = 10 * time.Second, 0.005
	onClocks(t, func(t *testing.T, r *rig) {
		r.step(off, 3)
		fast := r.Provider() == servers.Processes
		if fast {
			r.Server(3).ClockRate(share)
		}
		p := r.ready(1, redlock.WithTTL(2*time.Second), redlock.WithRestartGuard(2*time.Second))[0]
		eventually(t, patience, "the rates are known", func() error {
			for i, n := range p.Stats().Nodes {
				if n.Clock.RateBound == 0 || n.Clock.RateBound > share/2 {
					return fmt.Errorf("server %d: %+v", i, n.Clock)
				}
			}
			return nil
		})
		for i, n := range p.Stats().Nodes {
			at, rate := time.Duration(0), 0.0
			if i == 3 {
				at = off
			}
			if i == 3 && fast {
				rate = share
			}
			c := n.Clock
			require.InDelta(t, rate, c.Rate, c.RateBound+0.0005, "server %d: %+v", i, c)
			require.InDelta(t, at.Seconds(), c.Offset.Seconds(), c.Bound.Seconds()+0.1, "server %d: %+v", i, c)
			require.True(t, n.Steady)
		}
		require.Less(t, p.Stats().Nodes[3].Clock.Bound, slack)
	})
}

// Three pools hand one lock round while servers whose clocks are a minute apart restart and are flushed, one after the
// other, each a guard after the last.
func TestFencesRiseOverClocksThatAreAMinuteApart(t *testing.T) { // FAULTS 35
	onClocks(t, func(t *testing.T, r *rig) {
		for i := range r.Len() {
			r.step(time.Duration(i-2)*15*time.Second, i)
		}
		ps := r.ready(3)
		var fence uint64
		handovers := 0
		over := func() {
			p := ps[handovers%len(ps)]
			l, err := p.Lock(bg, "a")
			require.NoError(t, err)
			require.Greater(t, l.Fence(), fence, "handover %d", handovers)
			fence = l.Fence()
			require.NoError(t, l.Unlock(bg))
			handovers++
		}
		flush := func(s *servers.Server) { require.NoError(t, s.Client().FlushAll(bg).Err()) }
		for i, forget := range map[int]func(s *servers.Server){4: (*servers.Server).Restart, 0: flush, 3: (*servers.Server).Restart} {
			r.forgets(i, forget, over)
			r.votesWithout(ps[0])
		}
		require.Greater(t, handovers, 200)
	})
}

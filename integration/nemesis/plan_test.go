package nemesis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func world() World {
	return World{
		Keeps: []Keeps{AOF, AOF, AOF, Snapshot, Snapshot}, Clocks: true,
		Links: make([][]Link, 4), Clients: make([]Client, 4),
	}
}

var hour = Config{Seed: 1, Duration: time.Hour, Pace: 2 * time.Second, Recovery: 3500 * time.Millisecond}

func mustPlan(t *testing.T, seed uint64) []Step {
	t.Helper()
	cfg := hour
	cfg.Seed = seed
	plan, err := NewPlan(world(), cfg)
	require.NoError(t, err)
	return plan.Steps
}

func TestAPlanTakesAMinorityAwayUnlessItSaysSo(t *testing.T) {
	for seed := range uint64(5) {
		plan := mustPlan(t, seed)
		for i, s := range plan {
			if s.Costly {
				continue
			}
			for c := range 4 {
				away := map[int]bool{}
				for _, o := range plan[max(0, i-200) : i+1] {
					for node := range 5 {
						if !o.Costly && o.At+o.For+hour.Recovery >= s.At && o.Takes(c, node) {
							away[node] = true
						}
					}
				}
				require.LessOrEqual(t, len(away), 2, "%v: client %d", s, c)
			}
		}
	}
}

func TestAClockIsChangedWhileAllOtherNodesAreWell(t *testing.T) {
	for seed := range uint64(5) {
		plan := mustPlan(t, seed)
		seen := 0
		for _, s := range plan {
			if !find(s.Kind).alone {
				continue
			}
			seen++
			for _, o := range plan {
				if o.ID == s.ID || o.At > s.At+s.For+hour.Recovery || o.At+o.For+hour.Recovery < s.At {
					continue
				}
				for node := range 5 {
					require.False(t, o.Takes(0, node) && node != s.Nodes[0], "%v during %v", o, s)
				}
			}
		}
		require.Greater(t, seen, 20)
	}
}

func TestAnHourHasAThousandFaultsOfEveryKind(t *testing.T) {
	plan := mustPlan(t, 1)
	require.Greater(t, len(plan), 1000)
	kinds := map[string]int{}
	for _, s := range plan {
		kinds[s.Kind]++
		require.Less(t, s.At+s.For, time.Hour)
	}
	for _, k := range Kinds {
		if k.needs != needNetwork {
			require.Greater(t, kinds[k.Name], 20, k.Name)
		}
	}
}

func TestASeedIsAPlan(t *testing.T) {
	require.Equal(t, mustPlan(t, 7), mustPlan(t, 7))
	require.NotEqual(t, mustPlan(t, 7), mustPlan(t, 8))
}

func TestNoTwoFaultsAreDoneToOneThingAtATime(t *testing.T) {
	plan := mustPlan(t, 3)
	for i, s := range plan {
		for _, o := range plan[:i] {
			require.False(t, o.At+o.For >= s.At && o.touches(s), "%v and %v", o, s)
		}
	}
}

func TestAnUnknownFaultIsRefused(t *testing.T) {
	cfg := hour
	cfg.Only = []string{"meteorite"}
	_, err := NewPlan(world(), cfg)
	require.ErrorContains(t, err, "meteorite")
}

func TestAFaultThatCannotBeHadIsRefused(t *testing.T) {
	bare := World{Keeps: make([]Keeps, 5)}
	for _, name := range []string{"clock-step", "clock-rate", "disconnect", "restart-aof", "old-snapshot", "cut", "freeze-client"} {
		cfg := hour
		cfg.Only = []string{"freeze", name}
		_, err := NewPlan(bare, cfg)
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, Possible(bare, nil), "clock-step")
	require.Contains(t, Possible(world(), nil), "clock-step")
}

// FLUSHALL on all servers together with SCRIPT FLUSH on all looks like a first use.
func TestNoPlanMakesAllServersLookUnused(t *testing.T) {
	flushed := 0
	for seed := range uint64(5) {
		cfg := hour
		cfg.Seed, cfg.Duration, cfg.Pace = seed, 10*time.Minute, 300*time.Millisecond
		cfg.Only = []string{"flushall", "flush-majority", "script-flush", "restart-majority-empty"}
		plan, err := NewPlan(world(), cfg)
		require.NoError(t, err)
		for i, s := range plan.Steps {
			data, scripts := map[int]bool{}, map[int]bool{}
			for _, o := range plan.Steps[:i+1] {
				if o.At+10*time.Second < s.At {
					continue
				}
				for _, n := range o.Nodes {
					switch o.Kind {
					case "flushall", "flush-majority":
						data[n] = true
					case "script-flush":
						scripts[n] = true
					}
				}
			}
			require.False(t, len(data) == 5 && len(scripts) == 5, "seed %d: %v", seed, s)
			if len(data) == 5 {
				flushed++
			}
		}
	}
	require.Positive(t, flushed, "all may be flushed: it is what the promise covers")
}

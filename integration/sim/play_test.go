package sim

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// outcome is what one schedule brought.
type outcome struct {
	Seed  uint64
	Stats *Stats
	Found []Violation
}

// warmed says that a schedule was played that does not count: what a process does only once draws from chance, too.
var warmed bool

// play runs the schedule of a seed in a bubble.
func play(t *testing.T, seed uint64, tr *trace) outcome {
	if !warmed {
		warmed = true
		play(t, 0, nil)
	}
	p := newPlan(seed)
	o := outcome{Seed: seed, Stats: NewStats()}
	o.Stats.Classes[p.Class]++
	// A collection in the middle would be another source of chance.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(*testing.T) { o.Found = run(p, o.Stats, tr) })
	return o
}

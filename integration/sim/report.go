package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what `make sim` prints at the end.
func (s *Stats) Report(took time.Duration, found []Violation) string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%-36s %12v\n", name, value) }
	line("schedules", s.Schedules)
	for _, c := range slices.Sorted(maps.Keys(s.Classes)) {
		line("  "+string(c), s.Classes[c])
	}
	line("acquisitions", s.Acquired)
	line("calls that failed", s.Failed)
	line("locks lost", s.Lost)
	line("simulated time", s.Simulated.Round(time.Second))
	line("real time", took.Round(time.Second))
	sum := 0
	for _, n := range s.Faults {
		sum += n
	}
	line("faults", sum)
	for _, k := range slices.Sorted(maps.Keys(s.Faults)) {
		line("  "+k, s.Faults[k])
	}
	line("violations", len(found))
	for _, v := range found {
		fmt.Fprintf(&b, "  %v\n    replay: make sim SEED=%d SCHEDULES=1 TRACE=1\n", v, v.Seed)
	}
	return b.String()
}

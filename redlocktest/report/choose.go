package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

const (
	maxViolations = 5                // drawn larger, of each history
	maxLosses     = 3                // the same
	maxEvents     = 80               // listed in words
	briefly       = 90 * time.Second // a history up to here is read without drawing pieces of it larger
)

// windows chooses what is drawn larger: what was asked for, violations, and of a long history the first losses.
func windows(s *story, o Options, violations []*redlocktest.Violation) []Window {
	all := o.Zoom
	around := max(time.Duration(3*min(s.longest, 1<<58)), 2*time.Second)
	if s.to-s.from < around { // nothing to enlarge
		around = (s.to - s.from) / 4
	}
	for i, v := range violations[:min(len(violations), maxViolations)] {
		if len(v.Records) == 0 {
			continue
		}
		from, to := v.Records[0].At, v.Records[0].At
		for _, r := range v.Records {
			from, to = min(from, r.At), max(to, r.At)
		}
		pad := max((to-from)/5, around/6)
		all = append(all, Window{fmt.Sprintf("Violation %d: %s", i+1, v.Rule), max(s.from, from-pad), min(s.to, to+pad)})
	}
	if s.to-s.from <= briefly {
		return all
	}
	for i, at := range lossesApart(s, 2*around) {
		all = append(all, Window{fmt.Sprintf("Larger, %d: a lock is lost at %s", i+1, span(at-s.from)), max(s.from, at-around), min(s.to, at+around)})
	}
	if len(all) == 0 {
		all = append(all, Window{"Larger: the beginning", s.from, min(s.to, s.from+4*around)})
	}
	return all
}

// lossesApart finds the first losses that do not share a window.
func lossesApart(s *story, apart time.Duration) []time.Duration {
	var times []time.Duration
	for _, c := range s.clients {
		for _, h := range c.holds {
			if h.how == redlocktest.Lost {
				times = append(times, h.told)
			}
		}
	}
	slices.Sort(times)
	var picked []time.Duration
	for _, at := range times {
		if len(picked) == maxLosses {
			break
		}
		if len(picked) == 0 || at-picked[len(picked)-1] > apart {
			picked = append(picked, at)
		}
	}
	return picked
}

// event is one line of what happened, in words.
type event struct{ At, Who, What string }

// eventsOf tells in words what the picture shows, as long as that can be read, and counts the rest.
func eventsOf(records []redlocktest.Record, zero time.Duration, names map[string]string) (events []event, more int) {
	repeated := map[string]bool{} // the same fault for each of several clients is told once
	for _, r := range records {
		what := eventText(r)
		if what == "" {
			continue
		}
		who := cmp.Or(r.Client, names[r.Node], r.Node)
		if r.Node != "" && (r.Kind == redlocktest.Fault || r.Kind == redlocktest.Healed) {
			who = cmp.Or(names[r.Node], r.Node)
		}
		at := fmt.Sprintf("%.3f s", (r.At - zero).Seconds())
		if key := fmt.Sprintf("%.1f%s%s", (r.At - zero).Seconds(), who, what); repeated[key] {
			continue
		} else {
			repeated[key] = true
		}
		if len(events) == maxEvents {
			more++
			continue
		}
		if r.Kind == redlocktest.NodeSays && r.Node != "" {
			what = cmp.Or(names[r.Node], r.Node) + " " + what
		}
		events = append(events, event{at, who, what})
	}
	return events, more
}

func eventText(r redlocktest.Record) string {
	switch r.Kind {
	case redlocktest.Acquired:
		return fmt.Sprintf("acquires the lock, fence %d, %s after it asked", r.Fence, span(r.At-cmp.Or(r.Began, r.At)))
	case redlocktest.Releasing:
		return "gives it back"
	case redlocktest.Lost:
		late := ""
		if r.Deadline != 0 {
			late = fmt.Sprintf(", %s after its deadline", span(r.At-r.Deadline))
		}
		return "is told that the lock is lost" + late + ": " + short(r.Text, 300)
	case redlocktest.Refused:
		return fmt.Sprintf("writes with fence %d: the store refuses", r.Fence)
	case redlocktest.Fault:
		return "broken: " + r.Text
	case redlocktest.Healed:
		return "mended: " + r.Text
	case redlocktest.Frozen:
		return "stood still for " + span(r.At-r.Began)
	case redlocktest.NodeSays:
		switch r.Text {
		case "lost":
			return "does not answer any more"
		case "back":
			return "answers again"
		case "unsteady":
			return "has no vote"
		case "steady":
			return "has its vote"
		case "clock":
			return "has another time"
		}
		return r.Text
	case redlocktest.Ended:
		return "ends"
	case redlocktest.Left:
		return "a key was left behind"
	}
	return ""
}

package redlocktest

import (
	"fmt"
	"time"
)

// exclusive finds the overlap that takes the least time to show.
func (c *checked) exclusive() *Violation {
	var worst *Violation
	var shortest time.Duration
	count := 0
	all, names := c.byResource()
	for _, name := range names {
		var last *span // of those so far, the one that ends last
		for _, s := range all[name] {
			if last != nil && last.end() > s.acquired.At && s.credible() {
				count++
				if took := s.acquired.At - last.acquired.At; worst == nil || took < shortest {
					worst, shortest = overlap(name, last, s), took
				}
			}
			if last == nil || s.end() > last.end() {
				last = s
			}
		}
	}
	if worst != nil {
		worst.More = count - 1
	}
	return worst
}

// overlap describes two holds of one resource at the same time.
func overlap(resource string, a, b *span) *Violation {
	records := a.records()
	zero := a.acquired.At
	text := fmt.Sprintf("two holds of %q at the same time: that of %s is believed in until %s, that of %s from %s", resource,
		a.acquired.Client, since(zero, a.end()), b.acquired.Client, since(zero, b.acquired.At))
	return &Violation{Rule: RuleExclusive, Text: text, Records: append(records, b.acquired)}
}

// credible says whether the lock was believed in when Lock returned: not where
// the process was frozen on the way, past the deadline.
func (s *span) credible() bool {
	return s.acquired.Deadline == 0 || s.acquired.Deadline > s.acquired.At || s.seen.Kind != ""
}

// records are those that say from when until when the hold lasted, and no other.
func (s *span) records() []Record {
	all := []Record{s.acquired}
	add := func(r Record) {
		last := all[len(all)-1]
		if r.Kind != last.Kind || r.Hold != last.Hold || r.At != last.At {
			all = append(all, r)
		}
	}
	end := s.end()
	if s.seen.Kind != "" && s.seen.At == end {
		add(s.seen)
		return all
	}
	if s.acquired.Deadline > 0 && s.acquired.Deadline < end {
		add(s.bound)
	}
	if s.finish.Kind == "" {
		add(s.alive)
	} else {
		add(s.finish)
	}
	return all
}

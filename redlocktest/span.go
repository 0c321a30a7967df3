package redlocktest

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// span is one hold as the records tell of it: a lock from its acquisition to its
// end.
//
//	Began       Acquired     Extended, Checked         end
//	  |------------|=============|==========|==========|
//	   may be held            is believed in
//
// It ends with the first of: Unlock is called, the last known deadline, the loss
// is told, the process ends. Where none of these but the deadline is known the
// process may have died at any moment, so the span ends with the last record that
// shows it alive. Seen valid after all of these, it lasts until it was seen.
type span struct {
	acquired Record
	proof    Record // the last record that moved end forward: Acquired, Extended, Checked, Releasing
	finish   Record // Releasing, Lost or Ended: the first of them; its Kind is "" if there is none
	released Record // Kind is "" if Unlock did not return
	loss     Record // Kind is "" if none was told
	deadline time.Duration
	lastSeen time.Duration // the last record that shows the holder alive
	checked  time.Duration // when it was last seen valid
	frozen   time.Duration // how long the process stood still between the deadline and the loss
	delay    time.Duration // how late its timers were around then, at worst
}

// end is when the hold stops being believed in, see span.
func (s *span) end() time.Duration {
	end := time.Duration(math.MaxInt64)
	if s.deadline > 0 {
		end = s.deadline
	}
	if s.finish.Kind != "" {
		end = min(end, s.finish.At)
	} else {
		end = min(end, s.lastSeen)
	}
	return max(end, s.checked)
}

func (s *span) heldFor() time.Duration {
	if s.finish.Kind == "" {
		return 0
	}
	return s.finish.At - s.acquired.At
}

// due is the last moment at which a loss had to be told. The lock may know of a
// later deadline than was recorded while it was held.
func (s *span) due() time.Duration { return max(s.deadline, s.loss.Deadline) }

// lateness is how long after its deadline a loss was told, less the time in which
// the process stood still.
func (s *span) lateness() time.Duration {
	if s.loss.Kind == "" {
		return 0
	}
	return max(0, s.loss.At-s.due()-s.frozen)
}

// holdKey tells holds apart. Records made by hand may have no Hold.
type holdKey struct{ client, hold string }

// spansOf puts records, which must be in the order of At, together to spans in
// the order of their acquisition.
func spansOf(records []Record) []*span {
	var all []*span
	current := map[holdKey]*span{}
	open := map[string]map[*span]holdKey{} // by client: those that Ended would end
	for _, r := range records {
		if r.Kind == Ended {
			for s := range open[r.Client] {
				s.note(r)
			}
			delete(open, r.Client)
			continue
		}
		key := holdKey{r.Client, r.Hold}
		if r.Kind == Acquired {
			s := &span{acquired: r}
			s.note(r)
			all = append(all, s)
			current[key] = s
			if open[r.Client] == nil {
				open[r.Client] = map[*span]holdKey{}
			}
			open[r.Client][s] = key
			continue
		}
		s := current[key]
		if s == nil {
			continue
		}
		s.note(r)
		if r.Kind == Releasing || r.Kind == Lost {
			delete(open[r.Client], s)
		}
	}
	excuse(all, records)
	return all
}

// note adds what r, a record of this hold, tells about it.
func (s *span) note(r Record) {
	switch r.Kind {
	case Acquired, Extended, Checked:
		if s.finish.Kind != "" && r.Kind != Checked {
			return // it was seen to move, and recorded, while others ended it
		}
		s.lastSeen, s.proof = max(s.lastSeen, r.At), r
		if r.Deadline > 0 {
			s.deadline = r.Deadline
		}
		if r.Kind == Checked {
			s.checked = max(s.checked, r.At)
		}
	case Releasing, Lost, Ended:
		if r.Kind == Lost && s.loss.Kind == "" {
			s.loss = r
		}
		if s.finish.Kind != "" {
			return
		}
		s.finish = r
		if r.Kind == Releasing && r.Deadline > 0 { // still valid then, as the lock itself said
			s.deadline, s.checked, s.proof = r.Deadline, max(s.checked, r.At), r
		}
	case Released:
		if s.released.Kind == "" {
			s.released = r
		}
	}
}

// excuse finds what may have kept each loss from being told in time.
func excuse(all []*span, records []Record) {
	still := map[string][]Record{} // Frozen and Delayed by client
	for _, r := range records {
		if r.Kind == Frozen || r.Kind == Delayed {
			still[r.Client] = append(still[r.Client], r)
		}
	}
	for _, s := range all {
		if s.loss.Kind == "" || s.loss.At <= s.due() {
			continue
		}
		for _, r := range overlapping(still[s.acquired.Client], s.due(), s.loss.At) {
			if r.Kind == Delayed {
				s.delay = max(s.delay, r.Late)
			} else {
				s.frozen += min(r.At, s.loss.At) - max(r.Began, s.due())
			}
		}
	}
}

// overlapping picks those of records, in the order of At, whose time from Began
// to At has a moment in common with the one given. None may be longer than a
// minute, but for Frozen ones of which there are few.
func overlapping(records []Record, from, to time.Duration) []Record {
	first, _ := slices.BinarySearchFunc(records, from, func(r Record, at time.Duration) int { return cmp.Compare(r.At, at) })
	var found []Record
	for _, r := range records[first:] {
		if r.Began < to && r.At > from {
			found = append(found, r)
		}
		if r.Began > to+time.Minute {
			break
		}
	}
	return found
}

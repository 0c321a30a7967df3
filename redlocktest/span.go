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
// process may have died at any moment, so the span ends with the last record of
// any kind that shows its client alive, if that is before the deadline. Seen valid
// after all of these, it lasts until it was seen.
type span struct {
	acquired Record
	alive    Record // not finished, or by Ended: the last record of its client's run; otherwise Acquired
	bound    Record // the last with a Deadline
	seen     Record // the last time the lock itself said that it is valid: Checked, or Releasing; Kind is "" if it never did
	finish   Record // Releasing, Lost or Ended: the first of them; Kind is "" if there is none
	released Record // Kind is "" if Unlock did not return
	loss     Record // Kind is "" if none was told
	expired  Record // the first Checked after the deadline that it names itself
	unsure   Record // the last Checked without one that came after all that is known of

	validity time.Duration // the longest time from a record to its deadline
	frozen   time.Duration // how long the process stood still between the deadline and the loss
	delay    time.Duration // how late its timers were around then, at worst
}

// end is when the hold stops being believed in, see span.
func (s *span) end() time.Duration {
	end := never
	if s.bound.Kind != "" {
		end = s.bound.Deadline
	}
	if s.finish.Kind != "" {
		end = min(end, s.finish.At)
	} else {
		end = min(end, s.alive.At)
	}
	return max(end, s.seen.At)
}

func (s *span) heldFor() time.Duration {
	if s.finish.Kind == "" {
		return 0
	}
	return s.finish.At - s.acquired.At
}

// due is the last moment at which a loss had to be told: not before Lock
// returned. The lock may name a later deadline than was recorded, but not one
// that is out of reach: else it could excuse any delay by naming it.
func (s *span) due() time.Duration {
	named := s.loss.Deadline
	if s.bound.Kind != "" {
		named = min(named, s.reach())
	}
	return max(s.bound.Deadline, named, s.acquired.At)
}

// lateness is how long after its deadline a loss was told, less the time in which
// the process stood still.
func (s *span) lateness() time.Duration {
	if s.loss.Kind == "" {
		return 0
	}
	return max(0, s.loss.At-s.due()-s.frozen)
}

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// holdKey tells holds apart. Records made by hand may have no Hold.
type holdKey struct{ client, hold string }

// spansOf puts records, which must be in the order of At, together to spans in
// the order of their acquisition.
func spansOf(records []Record) []*span {
	var all []*span
	current := map[holdKey]*span{}
	latest := map[string]Record{}          // by client: the last record of its run
	open := map[string]map[*span]holdKey{} // by client: those that Ended would end
	for _, r := range records {
		if r.Kind == Ended {
			for s := range open[r.Client] {
				s.alive = latest[r.Client]
				s.note(r)
			}
			delete(open, r.Client)
			delete(latest, r.Client)
			continue
		}
		if r.ofClient() {
			latest[r.Client] = r
		}
		key := holdKey{r.Client, r.Hold}
		if r.Kind == Acquired {
			s := &span{}
			s.begin(r)
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
	for client, spans := range open {
		for s := range spans {
			s.alive = latest[client]
		}
	}
	excuseAll(all, stillBy(records))
	return all
}

// ofClient says whether r was recorded by the client that it names: whoever breaks
// things, buries processes and looks for what is left names clients too.
func (r Record) ofClient() bool {
	return r.Kind != Fault && r.Kind != Healed && r.Kind != Ended && r.Kind != Left
}

// begin makes s a hold of which nothing is known but its acquisition.
func (s *span) begin(acquired Record) {
	s.acquired, s.alive = acquired, acquired
	s.note(acquired)
}

// note adds what r, a record of this hold, tells about it.
func (s *span) note(r Record) {
	switch r.Kind {
	case Acquired, Extended, Checked:
		if r.Kind == Checked {
			s.seen = r
			s.past(r)
		}
		if s.finish.Kind != "" {
			return // what is recorded at the same time by another goroutine
		}
		if r.Kind != Checked || r.Deadline > r.At && (r.Deadline-s.bound.Deadline).Abs() > grain {
			s.limit(r)
		}
	case Releasing, Lost, Ended:
		if r.Kind == Lost && s.loss.Kind == "" {
			s.loss = r
		}
		if s.finish.Kind != "" {
			return
		}
		s.finish = r
		if r.Kind == Releasing && r.Deadline > 0 {
			s.seen = r
			s.limit(r)
		}
	case Released:
		if s.released.Kind == "" {
			s.released = r
		}
	}
}

// past keeps a time at which the lock called itself valid after its deadline.
func (s *span) past(r Record) {
	switch {
	case r.Deadline > 0:
		if r.At > r.Deadline+grain && s.expired.Kind == "" {
			s.expired = r
		}
	case s.bound.Kind != "" && r.At > s.reach():
		s.unsure = r
	}
}

// grain is what two readings of clocks, taken as close to each other as a process
// can, may differ by, and more.
const grain = time.Millisecond

// reach is the latest deadline that can be believed in by what is recorded: one
// renewal may have been missed, since the last one that is known is looked at
// when its deadline comes at the latest. A renewal comes before the deadline that
// it moves, and moves it by no more than the longest validity seen.
func (s *span) reach() time.Duration { return s.bound.Deadline + s.validity }

func (s *span) limit(r Record) {
	if r.Deadline > 0 {
		s.bound = r
		s.validity = max(s.validity, r.Deadline-r.At)
	}
}

// excuseAll finds what may have kept each loss from being told in time.
func excuseAll(all []*span, still map[string][]Record) {
	for _, s := range all {
		if s.loss.Kind != "" && s.loss.At > s.due() {
			s.frozen, s.delay = excuse(still[s.acquired.Client], s.due(), s.loss.At)
		}
	}
}

// stillBy are the Frozen and Delayed records of each client.
func stillBy(records []Record) map[string][]Record {
	by := map[string][]Record{}
	for _, r := range records {
		if r.Kind == Frozen || r.Kind == Delayed {
			by[r.Client] = append(by[r.Client], r)
		}
	}
	return by
}

// excuse is how long a process stood still from from to to, and how late its
// timers were at worst around then, by its Frozen and Delayed records.
func excuse(still []Record, from, to time.Duration) (frozen, delay time.Duration) {
	for _, r := range overlapping(still, from, to) {
		if r.Kind == Delayed {
			delay = max(delay, r.Late)
		} else {
			frozen += min(r.At, to) - max(r.Began, from)
		}
	}
	return frozen, delay
}

// overlapping picks those Frozen and Delayed records of one client, in the order
// of At, whose time from Began to At has a moment in common with the one given.
func overlapping(records []Record, from, to time.Duration) []Record {
	first, _ := slices.BinarySearchFunc(records, from, func(r Record, at time.Duration) int { return cmp.Compare(r.At, at) })
	var found []Record
	for _, r := range records[first:] {
		if r.Began > to+time.Minute { // they follow each other, give or take a report
			break
		}
		if r.Began < to && r.At > from {
			found = append(found, r)
		}
	}
	return found
}

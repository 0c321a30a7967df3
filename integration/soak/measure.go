package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// summary is a soak in numbers. In JSON durations are nanoseconds.
type summary struct {
	Kept     bool          `json:"kept"` // no promise was broken
	Seed     uint64        `json:"seed"`
	Lock     string        `json:"lock"`
	Provider string        `json:"provider"`
	Duration time.Duration `json:"duration"` // of the plan
	TTL      time.Duration `json:"ttl"`      // and guard
	Clients  int           `json:"clients"`
	Workers  int           `json:"workers"` // in each client
	Checks   []check       `json:"checks"`

	Faults  int            `json:"faults"` // steps of the plan that were done, whatever number of nodes each was done to
	Kinds   map[string]int `json:"kinds"`
	Costly  int            `json:"costly"`  // those that took a majority
	NotDone []string       `json:"notDone"` // faults that could not be brought about, and why

	NotMended []string `json:"notMended"` // faults that could not be mended, and why
	LeftOut   []string `json:"leftOut"`   // faults that did not fit into the run any more
	Repeated  int64    `json:"repeated"`  // requests that were sent again

	Span        time.Duration `json:"span"` // from the first lock to the end
	Acquired    int           `json:"acquired"`
	PerSecond   float64       `json:"perSecond"`
	Multi       int           `json:"multi"` // of several resources
	Failed      int           `json:"failed"`
	Extended    int           `json:"extended"`
	Checked     int           `json:"checked"`
	Released    int           `json:"released"`
	Writes      int           `json:"writes"`
	Refused     int           `json:"refused"` // writes that the store refused for their fence
	UnknownEnd  int           `json:"unknownEnd"`
	Processes   int           `json:"processes"`
	Torn        int           `json:"torn"` // lines cut off by a kill
	Overlaps    int           `json:"overlaps"`
	OverlapTime time.Duration `json:"overlapTime"`
	LostUpdates int           `json:"lostUpdates"`
	// FallingFences counts locks whose fence is not above that of one that was handed out before they were asked for.
	FallingFences int `json:"fallingFences"`
	Left          int `json:"left"`

	Agreed      int           `json:"agreed"`      // ends that were agreed upon: leases, longest holds
	Losses      int           `json:"losses"`      // all others
	ToldEarly   int           `json:"toldEarly"`   // of all: by the deadline
	ToldLate    int           `json:"toldLate"`    // after it
	NeverTold   int           `json:"neverTold"`   // not at all, by a process that ran after it
	ByStalls    int           `json:"byStalls"`    // of the losses: those that only a process that stood still explains
	MedianLate  time.Duration `json:"medianLate"`  // after the deadline, by processes that did not stand still at that time
	P99Late     time.Duration `json:"p99Late"`     // 99 % were no later
	MaxLate     time.Duration `json:"maxLate"`     // the worst, by a process that did not stand still at that time
	MaxLateAny  time.Duration `json:"maxLateAny"`  // the worst, whatever stood still
	MaxDelay    time.Duration `json:"maxDelay"`    // of a process's timers, frozen and starved ones included
	MedianDelay time.Duration `json:"medianDelay"` // of the worst of each second
	P99Delay    time.Duration `json:"p99Delay"`

	Away        time.Duration `json:"away"`        // gaps of more than a second in which no client got its probe, together
	LongestAway time.Duration `json:"longestAway"` // the longest of them
}

// held is one hold as the records tell of it.
type held struct {
	client, hold string
	resources    []string
	from, until  time.Duration // until: the earliest of what ended it, but no earlier than it was seen valid
	ended        bool          // given back, told lost, or its process gone

	fence uint64
	told  bool          // of its loss
	bound time.Duration // the latest moment at which the lock, by what it said itself, was still held
	last  time.Duration // the last moment at which the holder is known to have been there, with a lock that it had not given back
}

func (r *run) measure(records []redlocktest.Record) *summary {
	s := &summary{
		Seed: r.o.seed, Lock: r.o.lock, Provider: r.o.provider, Duration: r.o.duration, TTL: r.o.ttl, Clients: r.o.clients,
		Workers: r.o.workers, Kinds: map[string]int{}, NotDone: r.notDone, NotMended: r.notMended, LeftOut: r.leftOut, Repeated: r.repeated,
	}
	s.faults(records)
	s.count(records)
	s.rate(records, r.ended)
	s.delays(records)
	s.lateness(records)
	s.availability(records, r.ended)
	holds := holdsOf(records)
	s.overlaps(holds)
	s.fences(records)
	return s
}

// faults counts steps, whatever number of nodes each was done to.
func (s *summary) faults(records []redlocktest.Record) {
	steps := map[int64]bool{}
	for _, rec := range records {
		if rec.Kind != redlocktest.Fault || steps[rec.Value] {
			continue
		}
		steps[rec.Value] = true
		s.Faults++
		s.Kinds[rec.Text]++
		if nemesis.TakesMajority(rec.Text) {
			s.Costly++
		}
	}
}

func (s *summary) count(records []redlocktest.Record) {
	seen := map[string]map[int64]bool{}
	for _, rec := range records {
		switch rec.Kind {
		case redlocktest.Acquired:
			s.Acquired++
			if len(rec.Resources) > 1 {
				s.Multi++
			}
		case redlocktest.Failed:
			s.Failed++
		case redlocktest.Extended:
			s.Extended++
		case redlocktest.Checked:
			s.Checked++
		case redlocktest.Released:
			s.Released++
		case redlocktest.Ended:
			s.Processes++
		case redlocktest.Left:
			s.Left++
		case redlocktest.Refused:
			s.Refused++
		case redlocktest.Unknown:
			s.UnknownEnd++
		case redlocktest.Wrote:
			s.Writes++
			// Each write makes the value one more: the same value twice is an update that was lost.
			name := rec.Resources[0]
			if seen[name] == nil {
				seen[name] = map[int64]bool{}
			}
			if seen[name][rec.Value] {
				s.LostUpdates++
			}
			seen[name][rec.Value] = true
		}
	}
}

// delays are how late the processes' timers were, by the worst of each second.
func (s *summary) delays(records []redlocktest.Record) {
	var all []time.Duration
	for _, rec := range records {
		if rec.Kind == redlocktest.Delayed {
			all = append(all, rec.Late)
		}
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	s.MaxDelay, s.MedianDelay, s.P99Delay = all[len(all)-1], all[len(all)/2], all[len(all)*99/100]
}

// lateness is how long after its deadline each loss was told.
func (s *summary) lateness(records []redlocktest.Record) {
	still := map[string][]redlocktest.Record{} // by client, in order
	for _, rec := range records {
		if rec.Kind == redlocktest.Frozen {
			still[rec.Client] = append(still[rec.Client], rec)
		}
	}
	var ran []time.Duration // by processes that ran
	for _, rec := range records {
		if rec.Kind != redlocktest.Lost {
			continue
		}
		if agreed(rec) {
			s.Agreed++
		} else {
			s.Losses++
		}
		late := rec.At - rec.Deadline
		if late <= 0 {
			s.ToldEarly++
			ran = append(ran, 0)
			continue
		}
		s.ToldLate++
		s.MaxLateAny = max(s.MaxLateAny, late)
		// The process finds out that it stood still within a moment of waking, perhaps after the loss is told.
		i, _ := slices.BinarySearchFunc(still[rec.Client], rec.Deadline, func(f redlocktest.Record, at time.Duration) int { return cmp.Compare(f.At, at) })
		if fs := still[rec.Client][i:]; len(fs) == 0 || fs[0].Began > rec.At {
			ran = append(ran, late)
		}
	}
	if len(ran) > 0 {
		slices.Sort(ran)
		s.MedianLate, s.P99Late, s.MaxLate = ran[len(ran)/2], ran[len(ran)*99/100], ran[len(ran)-1]
	}
}

func (s *summary) rate(records []redlocktest.Record, end time.Duration) {
	i := slices.IndexFunc(records, func(rec redlocktest.Record) bool { return rec.Kind == redlocktest.Acquired })
	if i >= 0 && records[i].At < end {
		s.Span = end - records[i].At
		s.PerSecond = float64(s.Acquired) / s.Span.Seconds()
	}
}

// availability is measured by the probes.
func (s *summary) availability(records []redlocktest.Record, end time.Duration) {
	var first, last time.Duration
	for _, rec := range records {
		if rec.Kind != redlocktest.Acquired || rec.At > end || !strings.HasPrefix(rec.Resources[0], probePrefix) {
			continue
		}
		if first == 0 {
			first, last = rec.At, rec.At
		}
		s.gap(rec.At - last)
		last = rec.At
	}
	if first == 0 {
		return
	}
	s.gap(end - last)
}

func (s *summary) gap(d time.Duration) {
	s.LongestAway = max(s.LongestAway, d)
	if d > time.Second {
		s.Away += d
	}
}

// holdsOf puts records together to holds, in the order of their beginning.
func holdsOf(records []redlocktest.Record) (all []*held) {
	type key struct{ client, hold string }
	open := map[key]*held{}
	alive := map[string]time.Duration{} // clients: when each wrote something last
	end := func(h *held, at time.Duration) {
		if !h.ended {
			h.ended, h.until = true, min(h.until, at)
		}
	}
	for _, rec := range records {
		h := open[key{rec.Client, rec.Hold}]
		switch rec.Kind {
		case redlocktest.Ended, redlocktest.Fault, redlocktest.Healed, redlocktest.Unknown:
		default:
			alive[rec.Client] = rec.At
		}
		switch rec.Kind {
		case redlocktest.Acquired:
			h = &held{client: rec.Client, hold: rec.Hold, resources: rec.Resources, from: rec.At, until: rec.Deadline,
				fence: rec.Fence, bound: max(rec.At, rec.Deadline)}
			all = append(all, h)
			open[key{rec.Client, rec.Hold}] = h
		case redlocktest.Extended:
			if h != nil && !h.ended {
				h.until, h.bound = rec.Deadline, max(h.bound, rec.Deadline)
			}
		case redlocktest.Checked:
			if h != nil {
				h.until, h.bound = max(h.until, rec.At), max(h.bound, rec.At)
			}
		case redlocktest.Releasing, redlocktest.Lost:
			if h != nil {
				end(h, rec.At)
				h.told = h.told || rec.Kind == redlocktest.Lost
				h.bound = max(h.bound, rec.Deadline) // while it was given back it may say once more for how long it has it
				if h.last == 0 {
					h.last = rec.At
				}
			}
		case redlocktest.Ended:
			for k, h := range open {
				if k.client == rec.Client {
					end(h, rec.At)
					delete(open, k)
					if h.last == 0 {
						h.last = alive[rec.Client]
					}
				}
			}
		}
	}
	for _, h := range all {
		if h.last == 0 {
			h.last = alive[h.client]
		}
	}
	return all
}

// overlaps counts holds that began while another of the same resource was believed in, and for how long both were.
func (s *summary) overlaps(holds []*held) {
	last := map[string]*held{} // by resource: the one that lasts longest
	for _, h := range holds {
		if h.until <= h.from {
			continue // it had run out before the caller had it
		}
		for _, resource := range h.resources {
			before := last[resource]
			if before != nil && h.from < before.until {
				s.Overlaps++
				s.OverlapTime += min(h.until, before.until) - h.from
			}
			if before == nil || h.until > before.until {
				last[resource] = h
			}
		}
	}
}

// fences counts, for each resource, those that did not rise.
func (s *summary) fences(records []redlocktest.Record) {
	type acquisition struct {
		began, at time.Duration
		fence     uint64
	}
	of := map[string][]acquisition{} // by resource, in the order of at
	for _, rec := range records {
		if rec.Kind == redlocktest.Acquired && rec.Fence > 0 {
			for _, resource := range rec.Resources {
				of[resource] = append(of[resource], acquisition{rec.Began, rec.At, rec.Fence})
			}
		}
	}
	for _, byEnd := range of {
		byStart := slices.Clone(byEnd)
		slices.SortFunc(byStart, func(a, b acquisition) int { return cmp.Compare(a.began, b.began) })
		next, highest := 0, uint64(0)
		for _, a := range byStart {
			for next < len(byEnd) && byEnd[next].at < a.began {
				highest = max(highest, byEnd[next].fence)
				next++
			}
			if a.fence <= highest {
				s.FallingFences++
			}
		}
	}
}

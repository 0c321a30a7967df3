package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// A holder that is told nothing finds out by itself, or gives back, late, what is no longer its own; or it dies. None of
// that is a loss that was told, so it takes a look of its own.

// toldSlack is how long after the end of its lock a holder may give it back and need not have been told: whoever tells it is
// late by the grain of the measured delay, and so is whoever is told, and finds out by itself. The same goes for the delay.
const toldSlack = 2 * honestSlack

// checkTold returns the holders that were there after their lock was over, and were told nothing; and says so if majorities
// were away from holders for longer than the TTL and nobody was told of any loss.
func (r *run) checkTold(records []redlocktest.Record, s *summary) error {
	still := stallsOf(records)
	holds := holdsOf(records)
	var errs []error
	for _, h := range holds {
		if h.told || h.last <= h.bound+toldSlack {
			continue
		}
		late := h.last - h.bound - still[h.client].between(h.bound, h.last)
		if late <= toldSlack {
			continue
		}
		if s.NeverTold++; s.NeverTold <= 5 {
			errs = append(errs, fmt.Errorf("%s was told nothing of the end of its lock on %v at %v (%s, fence %d), and had it still %v later, stalls not counted",
				h.client, h.resources, h.bound, h.hold, h.fence, late))
		}
	}
	if s.NeverTold > len(errs) {
		errs = append(errs, fmt.Errorf("and %d more", s.NeverTold-len(errs)))
	}
	if h, f := r.mustHaveLost(records, holds); h != nil && s.Losses == 0 {
		errs = append(errs, fmt.Errorf("no loss was told at all, although %s had %v from %v to %v, and %s took a majority from it from %v to %v",
			h.client, h.resources, h.from, h.last, f.text, f.from, f.healed))
	}
	return errors.Join(errs...)
}

// mustHaveLost finds a hold that was there all through the TTL after a majority was taken away for longer than that.
func (r *run) mustHaveLost(records []redlocktest.Record, holds []*held) (*held, trouble) {
	for _, f := range r.troubles(records) {
		over := f.from + r.o.ttl + toldSlack
		if !nemesis.TakesMajority(f.text) || f.healed < over {
			continue
		}
		for _, h := range holds {
			if h.from < f.from && h.last > over && (f.client == "" || f.client == h.client) {
				return h, f
			}
		}
	}
	return nil, trouble{}
}

// stalls is when a process did not run, and how late its timers were otherwise.
type stalls struct {
	still []redlocktest.Record // from Began to At, in the order of Began
	late  []redlocktest.Record
}

func stallsOf(records []redlocktest.Record) map[string]*stalls {
	all := map[string]*stalls{}
	of := func(client string) *stalls {
		if all[client] == nil {
			all[client] = &stalls{}
		}
		return all[client]
	}
	frozen := map[int64]time.Duration{}
	for _, rec := range records {
		switch {
		case rec.Kind == redlocktest.Frozen:
			of(rec.Client).still = append(of(rec.Client).still, rec)
		case rec.Kind == redlocktest.Delayed:
			of(rec.Client).late = append(of(rec.Client).late, rec)
		case rec.Kind == redlocktest.Fault && rec.Text == "freeze-client":
			frozen[rec.Value] = rec.At
		case rec.Kind == redlocktest.Healed && rec.Text == "freeze-client": // it may not live to say so itself
			of(rec.Client).still = append(of(rec.Client).still, redlocktest.Record{Began: frozen[rec.Value], At: rec.At})
		}
	}
	for _, s := range all {
		slices.SortFunc(s.still, func(a, b redlocktest.Record) int { return cmp.Compare(a.Began, b.Began) })
	}
	return all
}

// between is for how long a process did not run from from to to, and twice how late its timers were at worst around then.
func (s *stalls) between(from, to time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	var sum, worst time.Duration
	counted := from
	for _, rec := range s.still {
		if a, b := max(rec.Began, counted), min(rec.At, to); b > a {
			sum += b - a
			counted = b
		}
	}
	for _, rec := range s.late {
		if rec.Began < to && rec.At > from {
			worst = max(worst, rec.Late)
		}
	}
	return sum + 2*worst
}

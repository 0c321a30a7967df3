package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// CheckHonest asks for any fault before a loss, and in a soak there is always some. What the library promises is more:
// that a minority of nodes never costs a held lock. So a loss must have a cause that is enough for it: at some moment in
// the TTL before, a majority of nodes was away from that client or had no vote yet, or the process itself did not run.

// A process that stood still for a quarter of the TTL, all its stalls since then together, may lose a lock by that: renewals
// come at a third of it, and again soon where one failed.
func (r *run) stillFor() time.Duration { return r.o.ttl / 4 }

// trouble is a fault as it was, with the time that it took to recover.
type trouble struct {
	from, to     time.Duration
	healed       time.Duration // to, without the time to recover
	client, node string        // "" is any
	late         time.Duration // of a process: how long, of all this, it did not run; 0 is all of it
	takes        bool          // the node is away, or without a vote
	text         string
}

// checkSteady returns the losses that had no cause that is enough, and counts those that only a stall explains.
func (r *run) checkSteady(records []redlocktest.Record, s *summary) error {
	troubles := r.troubles(records)
	var errs []error
	first := 0 // troubles are in the order of their beginning; those before have ended long ago
	for _, rec := range records {
		if rec.Kind != redlocktest.Lost || agreed(rec) {
			continue
		}
		since := rec.At - r.o.ttl - 100*time.Millisecond
		for first < len(troubles) && troubles[first].from < since-longest {
			first++
		}
		switch about := concern(troubles[first:], rec, since); {
		case majorityAway(about, since):
		case stoodStill(about, since, rec.At) >= r.stillFor():
			s.ByStalls++
		default:
			errs = append(errs, fmt.Errorf("%s lost %v at %v (%s, fence %d, %s), with these troubles: %v",
				rec.Client, rec.Resources, rec.At, rec.Hold, rec.Fence, rec.Text, describe(about, rec)))
		}
	}
	return errors.Join(errs...)
}

// longest is more than any fault lasts with what follows it.
const longest = time.Minute

// concern picks, in their order, the troubles that there were for a client between since and its loss.
func concern(troubles []trouble, loss redlocktest.Record, since time.Duration) (about []trouble) {
	for _, t := range troubles {
		if t.from > loss.At {
			break
		}
		if t.to >= since && (t.client == "" || t.client == loss.Client) {
			about = append(about, t)
		}
	}
	return about
}

// majorityAway says whether a majority of nodes was away at some moment since then.
func majorityAway(about []trouble, since time.Duration) bool {
	// The number of nodes that are away grows only where a trouble begins.
	for _, t := range about {
		at, away := max(t.from, since), map[string]bool{}
		for _, o := range about {
			if o.takes && o.from <= at && o.to >= at {
				away[o.node] = true
			}
		}
		if len(away) > nodeCount/2 {
			return true
		}
	}
	return false
}

// stoodStill is for how long, in all, the process did not run between since and to.
func stoodStill(about []trouble, since, to time.Duration) (sum time.Duration) {
	counted := since
	for _, t := range about {
		if t.takes || t.node != "" {
			continue
		}
		from, until := max(t.from, counted), min(t.to, to)
		if t.late > 0 { // it stood still for that long, at some moment in between
			until = min(until, from+t.late)
		}
		if until > from {
			sum += until - from
			counted = until
		}
	}
	return sum
}

func describe(about []trouble, loss redlocktest.Record) string {
	var all []string
	for _, t := range about {
		all = append(all, fmt.Sprintf("%s %s%s from %v to %v", t.text, t.client, t.node, t.from-loss.At, t.to-loss.At))
	}
	return strings.Join(all, "; ")
}

// lateAtAll is what a delay of timers must be to be taken for a stall: the least that is recorded as one.
const lateAtAll = 100 * time.Millisecond

// troubles are all faults, and all times at which a client's process stood still.
func (r *run) troubles(records []redlocktest.Record) (all []trouble) {
	type key struct {
		client, node, text string
		step               int64
	}
	open := map[key]int{}
	for _, rec := range records {
		k := key{rec.Client, rec.Node, rec.Text, rec.Value}
		switch rec.Kind {
		case redlocktest.Fault:
			open[k] = len(all)
			all = append(all, trouble{
				from: rec.At, healed: rec.At + longest, to: rec.At + longest, client: rec.Client, node: rec.Node, text: rec.Text,
				takes: nemesis.TakesNode(rec.Text),
			})
		case redlocktest.Healed:
			if i, ok := open[k]; ok {
				all[i].healed, all[i].to = rec.At, rec.At
				if all[i].takes {
					all[i].to += r.recovery()
				}
			}
		case redlocktest.Frozen:
			all = append(all, trouble{from: rec.Began, healed: rec.At, to: rec.At, client: everybody(rec.Client), text: "stood still"})
		case redlocktest.Delayed:
			if rec.Late >= lateAtAll {
				all = append(all, trouble{from: rec.Began, healed: rec.At, to: rec.At, late: rec.Late, client: everybody(rec.Client), text: "was late"})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b trouble) int { return cmp.Compare(a.from, b.from) })
	return all
}

// everybody is who is held up when a process is: the network between clients and nodes is in our own.
func everybody(client string) string {
	if client == ourselves {
		return ""
	}
	return client
}

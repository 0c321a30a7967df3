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

// stillFor is how long a process must have stood still to lose a lock by that.
const stillFor = 100 * time.Millisecond

// trouble is a fault as it was, with the time that it took to recover.
type trouble struct {
	from, to     time.Duration
	healed       time.Duration // to, without the time to recover
	client, node string        // "" is any
	takes        bool          // the node is away, or without a vote
	text         string
}

// checkSteady returns the losses that had no cause that is enough.
func (r *run) checkSteady(records []redlocktest.Record) error {
	troubles := r.troubles(records)
	var errs []error
	first := 0 // troubles are in the order of their beginning; those before have ended long ago
	for _, rec := range records {
		if rec.Kind != redlocktest.Lost || agreed(rec) {
			continue
		}
		since := rec.At - r.o.ttl - stillFor
		for first < len(troubles) && troubles[first].from < since-longest {
			first++
		}
		if !r.enough(troubles[first:], rec, since) {
			errs = append(errs, fmt.Errorf("%s lost %v at %v (%s, fence %d, %s), with these troubles: %v",
				rec.Client, rec.Resources, rec.At, rec.Hold, rec.Fence, rec.Text, describe(troubles[first:], rec, since)))
		}
	}
	return errors.Join(errs...)
}

// longest is more than any fault lasts with what follows it.
const longest = time.Minute

// enough says whether what was wrong between since and the loss can have caused it.
func (r *run) enough(troubles []trouble, loss redlocktest.Record, since time.Duration) bool {
	var about []trouble
	for _, t := range troubles {
		if t.from > loss.At {
			break
		}
		if t.to < since || t.client != "" && t.client != loss.Client {
			continue
		}
		if !t.takes && t.node == "" {
			return true // the process did not run
		}
		about = append(about, t)
	}
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

func describe(troubles []trouble, loss redlocktest.Record, since time.Duration) string {
	var all []string
	for _, t := range troubles {
		if t.from <= loss.At && t.to >= since && (t.client == "" || t.client == loss.Client) {
			all = append(all, fmt.Sprintf("%s %s%s from %v to %v", t.text, t.client, t.node, t.from-loss.At, t.to-loss.At))
		}
	}
	return strings.Join(all, "; ")
}

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
			if rec.Late >= stillFor {
				all = append(all, trouble{from: rec.Began, healed: rec.At, to: rec.At, client: everybody(rec.Client), text: "was late"})
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

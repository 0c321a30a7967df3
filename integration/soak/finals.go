package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// readFinals reads every counter of the store, now that nobody writes any more: what was written last, and is not there,
// is an update that was lost, too.
func (r *run) readFinals() error {
	all, err := r.read()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	finals := map[string]int64{}
	for name := range writesOf(all.Records()) {
		value, err := r.w.store.Client().HGet(ctx, name, "value").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("reading %s from the store: %w", name, err)
		}
		finals[name] = value
	}
	r.finals = finals
	return nil
}

// counter is what is known of one counter of the store.
type counter struct {
	first   redlocktest.Record // the write with the lowest value; Kind is "" if there is none
	unknown []redlocktest.Record
}

// writesOf are the counters that were, or may have been, written.
func writesOf(records []redlocktest.Record) map[string]*counter {
	all := map[string]*counter{}
	for _, rec := range records {
		if rec.Kind != redlocktest.Wrote && rec.Kind != redlocktest.Unknown {
			continue
		}
		for _, name := range rec.Resources {
			if all[name] == nil {
				all[name] = &counter{}
			}
			switch c := all[name]; {
			case rec.Kind == redlocktest.Unknown:
				c.unknown = append(c.unknown, rec)
			case c.first.Kind == "" || rec.Value < c.first.Value:
				c.first = rec
			}
		}
	}
	return all
}

// checkStore checks the counters of a store with fences from their first value, which is 1, to what they hold at the end.
func (r *run) checkStore(all *redlocktest.History) error {
	var opts []redlocktest.CheckOption
	for name, value := range r.finals {
		opts = append(opts, redlocktest.WithFinal(name, value))
	}
	errs := []error{all.CheckStore(opts...)}
	for name, c := range writesOf(all.Records()) {
		before := int64(0) // writes of unknown outcome that may have come before the first
		for _, u := range c.unknown {
			if u.Fence <= c.first.Fence {
				before++
			}
		}
		if c.first.Kind != "" && (c.first.Value < 1 || c.first.Value > 1+before) {
			errs = append(errs, fmt.Errorf("the first write of %s that is known found %d before it, and %d writes of unknown outcome explain it",
				name, c.first.Value-1, before))
		}
	}
	return errors.Join(errs...)
}

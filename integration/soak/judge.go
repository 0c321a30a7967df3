package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// honestSlack is what a loss may be told late beyond the delay that its process measured: the grain of that measurement.
const honestSlack = 20 * time.Millisecond

// check is one promise, and how it came out.
type check struct {
	Name   string `json:"name"`
	Claim  string `json:"claim"`
	Broken string `json:"broken,omitempty"` // the shortest piece of history that shows it
	// NotLookedAt is why nobody can say: neither kept nor broken.
	NotLookedAt string `json:"notLookedAt,omitempty"`

	err error // the same, with the records
}

// notes are what a run leaves beside the histories, so that they can be judged again.
type notes struct {
	Seed        uint64
	Lock        string
	Provider    string
	Duration    time.Duration
	TTL         time.Duration
	NodeTimeout time.Duration
	Clients     int
	Workers     int
	Resources   int
	Faults      string
	Ended       time.Duration
	NotDone     []string
	NotMended   []string
	LeftOut     []string
	Kinds       []string // of faults that were to be had
	Repeated    int64
	Crashed     []string
	Finals      map[string]int64
}

const notesFile = "run.json"

func (r *run) writeNotes() error {
	text, err := json.MarshalIndent(notes{
		r.o.seed, r.o.lock, r.o.provider, r.o.duration, r.o.ttl, r.o.nodeTimeout, r.o.clients, r.o.workers, r.o.resources, r.o.faults,
		r.ended, r.notDone, r.notMended, r.leftOut, r.kinds, r.repeated, r.crashed, r.finals,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.o.out, notesFile), append(text, '\n'), 0o644)
}

// again judges the histories that an earlier run left in a directory.
func again(dir string, out io.Writer) (kept bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, notesFile))
	if err != nil {
		return false, err
	}
	var n notes
	if err := json.Unmarshal(text, &n); err != nil {
		return false, err
	}
	r := &run{out: out, ended: n.Ended, notDone: n.NotDone, notMended: n.NotMended, leftOut: n.LeftOut, kinds: n.Kinds,
		repeated: n.Repeated, crashed: n.Crashed, finals: n.Finals}
	r.o = options{
		seed: n.Seed, lock: n.Lock, provider: n.Provider, duration: n.Duration, ttl: n.TTL, nodeTimeout: n.NodeTimeout,
		clients: n.Clients, workers: n.Workers, resources: n.Resources, faults: n.Faults, out: dir,
	}
	return r.judge()
}

// judge reads what all processes wrote down, checks it, and writes summary.json and summary.html.
func (r *run) judge() (kept bool, err error) {
	all, err := r.read()
	if err != nil {
		return false, err
	}
	s := r.measure(all.Records())
	s.Torn = all.Torn()
	s.Checks = r.checks(all, s)
	kept = true
	for _, c := range s.Checks {
		kept = kept && c.Broken == ""
	}
	s.Kept = kept
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return false, err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(r.o.out, "summary.json"), append(text, '\n'), 0o644),
		writePage(filepath.Join(r.o.out, "summary.html"), s, all),
	)
	s.print(r.out)
	return kept, err
}

// read merges the histories. Nobody knows whether the last write of a process that was killed was taken.
func (r *run) read() (*redlocktest.History, error) {
	paths, err := filepath.Glob(filepath.Join(r.o.out, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	all, err := redlocktest.ReadHistory(paths...)
	if err != nil {
		return nil, err
	}
	for _, rec := range unknownWrites(all.Records()) {
		all.Add(rec)
	}
	return all, nil
}

// unknownWrites returns a record for each hold that a client had when it was killed: its process may have written
// without living to say so.
func unknownWrites(records []redlocktest.Record) (unknown []redlocktest.Record) {
	held := map[string]map[string]redlocktest.Record{} // client, hold
	for _, rec := range records {
		switch rec.Kind {
		case redlocktest.Acquired:
			if held[rec.Client] == nil {
				held[rec.Client] = map[string]redlocktest.Record{}
			}
			held[rec.Client][rec.Hold] = rec
		case redlocktest.Releasing:
			delete(held[rec.Client], rec.Hold)
		case redlocktest.Ended:
			for _, h := range held[rec.Client] {
				for _, resource := range h.Resources {
					unknown = append(unknown, redlocktest.Record{
						At: rec.At, Kind: redlocktest.Unknown, Client: h.Client, Hold: h.Hold, Fence: h.Fence,
						Resources: []string{resource}, Text: "killed",
					})
				}
			}
			delete(held, rec.Client)
		}
	}
	return unknown
}

// checks are the promises that can be broken.
func (r *run) checks(all *redlocktest.History, s *summary) []check {
	records := all.Records()
	checks := []check{
		outcome("exclusive", "no two holds of one resource overlap", all.CheckExclusive()),
		outcome("honest", "every loss was told by its deadline, beyond the measured delay of its process, and had a cause",
			all.CheckHonest(honestSlack, redlocktest.WithCauseWindow(r.o.ttl+r.recovery()))),
		outcome("steady", "no lock was lost while at most a minority of nodes was away and its process ran", r.checkSteady(records, s)),
		outcome("told", "no holder of a lock that was over was left untold", r.checkTold(records, s)),
		outcome("clean", "nothing was left on the nodes", all.CheckClean()),
		outcome("tidy", "no key stayed on a node within reach for longer than a node timeout and three seconds after it was given back "+
			"(seen where the TTL is longer than that)", r.checkTidy(records)),
		outcome("back", "once all was mended, every client got locks again", r.checkBack(records)),
	}
	if withFences[r.o.lock] {
		checks = append(checks,
			outcome("fences", "fences rise in the order of ownership", all.CheckFences()),
			outcome("store", "a store that checks the fence lost no update", r.checkStore(all)))
	} else {
		checks = append(checks, outcome("store", "a store that trusts the lock lost no update", none(s.LostUpdates)))
	}
	checks = append(checks, outcome("alive", "no client process ended by itself", r.checkAlive()))
	if r.o.faults == "none" {
		checks = append(checks, outcome("calm", "without faults no loss was told", checkCalm(records)))
	} else {
		checks = append(checks, outcome("felt", "faults were done, and in a run of two rounds of them every kind", r.checkFelt(s)))
	}
	return checks
}

// notLookedAt is the error of a check that had nothing to look at, and why.
type notLookedAt string

func (n notLookedAt) Error() string { return "not looked at: " + string(n) }

func outcome(name, claim string, err error) check {
	c := check{Name: name, Claim: claim}
	if why := notLookedAt(""); errors.As(err, &why) {
		c.NotLookedAt = string(why)
		return c
	}
	if c.err = err; err != nil {
		c.Broken = err.Error()
	}
	return c
}

// checkBack says which client did not get its probe, which nobody else wants, once all was mended and had recovered.
func (r *run) checkBack(records []redlocktest.Record) error {
	const last = 3 * time.Second
	had := map[string]bool{}
	for _, rec := range records {
		if rec.At >= r.ended-last && rec.Kind == redlocktest.Acquired {
			had[rec.Resources[0]] = true
		}
	}
	var errs []error
	for i := range r.o.clients {
		if name := probePrefix + clientName(i); r.o.faults != "none" && !had[name] {
			errs = append(errs, fmt.Errorf("nobody had %s in the last %v", name, last))
		}
	}
	return errors.Join(errs...)
}

// checkCalm counts losses that were not agreed upon.
func checkCalm(records []redlocktest.Record) error {
	var errs []error
	for _, rec := range records {
		if rec.Kind == redlocktest.Lost && !agreed(rec) {
			errs = append(errs, fmt.Errorf("%s lost %v at %v: %s", rec.Client, rec.Resources, rec.At, rec.Text))
		}
	}
	return errors.Join(errs...)
}

// agreed says whether a loss is the end that was agreed upon when the lock was taken.
func agreed(rec redlocktest.Record) bool {
	return rec.Text == redlocktest.LeaseOver || rec.Text == redlocktest.MaxHoldOver
}

func none(n int) error {
	if n > 0 {
		return fmt.Errorf("there were %d", n)
	}
	return nil
}

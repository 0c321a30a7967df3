package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// soak runs everything and reports whether all promises were kept. The error is of what could not be done.
func soak(ctx context.Context, o options, out io.Writer) (kept bool, err error) {
	if err := o.prepare(); err != nil {
		return false, err
	}
	history, err := redlocktest.OpenHistory(filepath.Join(o.out, "nemesis.jsonl"))
	if err != nil {
		return false, err
	}
	h := &host{}
	defer func() { err = errors.Join(err, h.end(), history.Close()) }()
	fmt.Fprintf(out, "soak: seed %d, %v on %s, %s, %d clients with %d workers, %d resources, TTL %v, output in %s\n",
		o.seed, o.duration, o.provider, o.lock, o.clients, o.workers, o.resources, o.ttl, o.out)

	// 1. Servers and clients. Fresh servers have no vote for a guard.
	w, err := build(h, o, history)
	if err != nil {
		return false, err
	}
	r := &run{o: o, w: w, history: history, out: out}
	if err := r.makePlan(); err != nil {
		return false, err
	}
	if err := w.startMembers(); err != nil {
		return false, err
	}

	// 2. Faults, or calm.
	began := time.Now()
	failed := r.disturb(ctx) // what there is to judge is judged all the same

	// 3. All is mended: locks are to be had again. Then everybody gives back what they hold.
	if r.o.faults != "none" {
		pause(ctx, r.recovery()+3*time.Second)
	}
	r.ended = history.Now()
	fmt.Fprintf(out, "soak: %v of faults over, ending the clients\n", time.Since(began).Round(time.Second))
	failed = errors.Join(failed, r.endMembers())
	// Not ctx: what was broken off is looked at all the same. The keys of clients that were killed run out by their TTL, and
	// the clocks that those go by were off by some seconds at most.
	time.Sleep(max(o.nodeTimeout+3*time.Second, o.ttl+time.Second))
	failed = errors.Join(failed, w.left(history), r.readFinals(), r.writeNotes())
	kept, err = r.judge()
	return kept && failed == nil, errors.Join(failed, err)
}

// run is what one soak has to remember.
type run struct {
	o       options
	w       *world
	history *redlocktest.History
	out     io.Writer

	plan  nemesis.Plan
	kinds []string      // of faults that were to be had
	ended time.Duration // when the clients were told to end

	crashed []string         // processes that ended by themselves, and how
	finals  map[string]int64 // the store's counters at the end; nil: not read

	mu        sync.Mutex            // guards the fields below
	begun     map[int]time.Duration // steps under way: when each began
	done      int                   // steps that were brought about
	active    int                   // those of them that are not over
	notDone   []string              // steps that could not be brought about
	notMended []string              // steps that could not be mended
	leftOut   []string              // steps that did not fit any more
	repeated  int64                 // requests that were sent again
}

// ourselves is the name of this process in the history.
const ourselves = "nemesis"

// recovery is how long a node may be without a vote after it was mended: the guard, and until that is noticed.
func (r *run) recovery() time.Duration { return r.o.ttl + 2*time.Second }

// makePlan plans the faults, before anything is started that would wait for them.
func (r *run) makePlan() (err error) {
	if r.o.faults == "none" {
		return nil
	}
	r.begun = map[int]time.Duration{}
	r.kinds = nemesis.Possible(r.w.nemesis, r.o.only())
	r.plan, err = nemesis.NewPlan(r.w.nemesis, nemesis.Config{
		Seed: r.o.seed, Duration: r.o.duration, Pace: r.o.pace, Recovery: r.recovery(), Only: r.o.only(),
	})
	return err
}

// disturb lets the nemesis do its work, or waits if there is none, and prints a line every ten seconds.
func (r *run) disturb(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var talking sync.WaitGroup // ends with ctx
	defer talking.Wait()
	defer cancel()
	talking.Go(func() { r.talk(ctx) })
	// The network between clients and nodes is in this process: what delays it delays everybody.
	talking.Go(func() { r.history.Client(ourselves).MeasureDelay(ctx) })

	if r.o.ttl > r.o.nodeTimeout+undoAfter {
		talking.Go(func() {
			if err := r.watchKeys(ctx); err != nil {
				fmt.Fprintln(r.out, "soak:", err)
			}
		})
	}

	pause(ctx, r.recovery()) // fresh servers
	if r.o.faults == "none" {
		r.awaitHolds(ctx)
		return nil
	}
	return nemesis.New(r.w.nemesis, r.report).Run(ctx, r.plan)
}

// awaitHolds waits for the locks that were asked for, else for the duration.
func (r *run) awaitHolds(ctx context.Context) {
	deadline := time.After(r.o.duration)
	for r.o.holds == 0 || r.w.tally().Acquired < r.o.holds {
		select {
		case <-ctx.Done():
			return
		case <-deadline:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// report records a fault that was brought about, and that it is over: once for each node, link or client that it is done
// to. Its record bears the time before it began, so that nothing it causes seems to come first; a fault that could not
// be brought about excuses nothing, and is none.
func (r *run) report(s nemesis.Step, what nemesis.Phase, err error) {
	now := r.history.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch what {
	case nemesis.Begins:
		r.begun[s.ID] = now
	case nemesis.Failed:
		r.notDone = append(r.notDone, fmt.Sprintf("%v: %v", s, err))
	case nemesis.LeftOut:
		r.leftOut = append(r.leftOut, s.String())
	case nemesis.Done:
		r.done++
		r.active++
		r.repeated += s.Repeated
		r.record(s, redlocktest.Record{At: r.begun[s.ID], Kind: redlocktest.Fault})
	case nemesis.Healed:
		r.active--
		if err != nil {
			r.notMended = append(r.notMended, fmt.Sprintf("%v: %v", s, err))
		}
		r.record(s, redlocktest.Record{At: now, Kind: redlocktest.Healed})
	}
}

func (r *run) record(s nemesis.Step, rec redlocktest.Record) {
	rec.Text, rec.Value = s.Kind, int64(s.ID)
	for _, n := range s.Nodes {
		rec.Node = nodeName(n)
		r.history.Add(rec)
	}
	rec.Node = ""
	for _, c := range s.Clients {
		rec.Client = clientName(c)
		r.history.Add(rec)
	}
	for _, p := range s.Pairs {
		rec.Client, rec.Node = clientName(p.Client), nodeName(p.Node)
		r.history.Add(rec)
	}
}

// talk prints how far it is.
func (r *run) talk(ctx context.Context) {
	began, before := time.Now(), tally{}
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		t := r.w.tally()
		r.mu.Lock()
		done, active := r.done, r.active
		r.mu.Unlock()
		gone := time.Since(began).Round(time.Second)
		left := max(0, r.o.duration+r.recovery()-gone).Round(time.Second)
		fmt.Fprintf(r.out, "%8v, %v to go: %d acquired (%d/s), %d failed, %d lost, %d writes, %d refused; %d faults, %d now\n",
			gone, left, t.Acquired, (t.Acquired-before.Acquired)/10, t.Failed, t.Lost, t.Writes, t.Refused, done, active)
		before = t
	}
}

// endMembers ends all clients at once.
func (r *run) endMembers() error {
	errs := make(chan error)
	for _, m := range r.w.members {
		go func() { errs <- m.end() }()
	}
	var all error
	for range r.w.members {
		all = errors.Join(all, <-errs)
	}
	for _, m := range r.w.members {
		r.crashed = append(r.crashed, m.crashes()...)
	}
	return all
}

// Package nemesis breaks servers, networks and client processes on purpose, by a schedule that a seed decides, and
// mends them again.
//
// It plans first: [NewPlan] is a pure function of a seed and of what there is to break, and never takes more nodes away
// from a client at once than docs/safety.md allows, unless a fault is marked as one that may cost availability. Then
// [Nemesis.Run] carries the plan out by the clock and reports when each fault really began and ended.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/servers"
)

// World is what a nemesis may break.
type World struct {
	Servers []*servers.Server // the nodes
	Keeps   []Keeps           // what each of them keeps on disk
	Clocks  bool              // the servers' clocks can be set
	Links   [][]Link          // the network between client i and node j; may be nil
	Clients []Client          // the client processes; may be nil
}

// Keeps says what a server has on disk when it is started again.
type Keeps string

// What a server can keep.
const (
	Nothing  Keeps = ""
	AOF      Keeps = "aof" // all that it answered
	Snapshot Keeps = "rdb" // its last SAVE
)

// Client is a process that uses the nodes.
type Client interface {
	Freeze() error // SIGSTOP; returns at once
	Thaw() error   // SIGCONT
	Kill() error   // SIGKILL; returns once the process is gone
	Start() error  // a new process in its place
}

// Report is told what happens, from several goroutines. A step that is not left out begins; then it either fails, and is
// over, or it is done and, later, healed.
type Report func(s Step, what Phase, err error)

// Phase is how far a step has come.
type Phase string

// What a step goes through.
const (
	Begins  Phase = "begins"   // whatever it causes comes after this
	Done    Phase = "done"     // it was brought about
	Failed  Phase = "failed"   // it was not: err says why. What there was of it is taken back
	Healed  Phase = "healed"   // it is over; err is why it could not be mended
	LeftOut Phase = "left out" // it did not fit into the plan's duration any more
)

// Nemesis carries out a plan.
type Nemesis struct {
	world  World
	report Report
}

// New makes a nemesis. report must not block.
func New(w World, report Report) *Nemesis { return &Nemesis{world: w, report: report} }

// Run carries out the plan and returns when everything is mended again. Where something takes longer than planned, what
// the promise does not allow beside it waits, and all that follows, too; what does not fit into the plan's duration
// any more is left out, and reported. If ctx ends before, it mends what is broken and returns; the error is that of what could not be
// mended.
func (n *Nemesis) Run(ctx context.Context, plan Plan) error {
	r := &run{began: time.Now(), promise: promise{world: n.world, recovery: plan.Recovery}}
	var running sync.WaitGroup // a goroutine for each step under way; each ends with its step or with ctx
	late := time.Duration(0)
	for i, s := range plan.Steps {
		planned := s.At
		if !pause(ctx, time.Until(r.began.Add(s.At+late))) {
			break
		}
		for s.At = r.now(); !r.begin(s); s.At = r.now() {
			if !pause(ctx, 10*time.Millisecond) {
				break
			}
		}
		late = s.At - planned
		if ctx.Err() != nil {
			break
		}
		if s.At+s.For > plan.Duration {
			for _, s := range plan.Steps[i:] {
				n.report(s, LeftOut, nil)
			}
			break
		}
		running.Go(func() { r.end(s, n.step(ctx, s)) })
	}
	running.Wait()
	return errors.Join(r.errs...)
}

// run is a plan that is being carried out.
type run struct {
	began time.Time // set by Run, then read-only

	mu      sync.Mutex // guards the fields below
	promise promise    // of what really happens
	errs    []error
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// endless is how long a step is taken to last until it is over.
const endless = 1000 * time.Hour

// begin puts a step among those under way, if that is allowed now.
func (r *run) begin(s Step) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promise.forget(s.At)
	if !r.promise.allowed(s) {
		return false
	}
	s.For = endless
	r.promise.add(s)
	return true
}

// end notes that a step is over; its nodes have yet to recover.
func (r *run) end(s Step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("step %d, %s: %w", s.ID, s.Kind, err))
	}
	for i := range r.promise.live {
		if o := &r.promise.live[i]; o.ID == s.ID {
			o.For = r.now() - o.At
		}
	}
}

// step breaks something, waits and mends it. Its error is that of the mending: a fault that could not be brought about
// is taken back at once, and only reported.
func (n *Nemesis) step(ctx context.Context, s Step) error {
	n.report(s, Begins, nil)
	var repeated atomic.Int64
	s.repeated = &repeated
	heal, err := inflict(&n.world, s)
	s.repeated, s.Repeated = nil, repeated.Load()
	if heal == nil {
		heal = func() error { return nil }
	}
	if err != nil {
		taken := heal()
		n.report(s, Failed, errors.Join(err, taken))
		return taken
	}
	n.report(s, Done, nil)
	pause(ctx, s.For)
	err = heal()
	n.report(s, Healed, err)
	return err
}

// pause reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

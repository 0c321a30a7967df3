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

// Report is told what happens, from several goroutines: each fault as it begins and as it ends. err is why it could not
// be done, or mended.
type Report func(s Step, healed bool, err error)

// Nemesis carries out a plan.
type Nemesis struct {
	world  World
	report Report
}

// New makes a nemesis. report must not block.
func New(w World, report Report) *Nemesis { return &Nemesis{world: w, report: report} }

// Run carries out the plan and returns when everything is mended again. If ctx ends before, it mends what is broken and
// returns; the error is that of what could not be mended.
func (n *Nemesis) Run(ctx context.Context, plan []Step) error {
	began := time.Now()
	var running sync.WaitGroup // a goroutine for each step under way; each ends with its step or with ctx
	var mu sync.Mutex
	var errs []error
	for _, s := range plan {
		if !pause(ctx, time.Until(began.Add(s.At))) {
			break
		}
		running.Go(func() {
			if err := n.step(ctx, s); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("step %d, %s: %w", s.ID, s.Kind, err))
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// step breaks something, waits and mends it. Its error is that of the mending: a fault that could not be brought about
// is only reported.
func (n *Nemesis) step(ctx context.Context, s Step) error {
	// Before it begins, so that nothing it causes seems to come before it.
	n.report(s, false, nil)
	heal, err := inflict(&n.world, s)
	if err != nil {
		n.report(s, false, err)
	}
	pause(ctx, s.For)
	if heal != nil {
		err = heal()
	} else {
		err = nil
	}
	n.report(s, true, err)
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

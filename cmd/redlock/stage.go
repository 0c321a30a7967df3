package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// stage is what one scenario plays on. One goroutine does and prints everything; observers and rivals only hand over.
type stage struct {
	teller
	ctx         context.Context
	fleet       fleet
	ttl         time.Duration
	nodeTimeout time.Duration
	settle      time.Duration // how long a node that is back is left alone, for the sake of other locks on it
	history     *redlocktest.History
	path        string // the history's file, for other processes
	resource    string
	most        int          // nodes that may be stopped at once
	stopped     map[int]bool // by this scenario
	events      chan told
	clients     []*client
	opts        []redlock.Option
	met         bool // all clients have found all nodes; what they say before means nothing
}

// told is an event and who told it.
type told struct {
	by *client
	ev redlock.Event
}

// errOver ends a scenario that cannot go on; the promise that broke says why. Any other error says that the drill could
// not do its work.
var errOver = errors.New("the scenario ends here")

// newStage prepares one scenario. The caller closes it.
func newStage(ctx context.Context, line *timeline, f fleet, ttl, settle time.Duration, h *redlocktest.History, path string) *stage {
	s := &stage{ctx: ctx, fleet: f, ttl: ttl, nodeTimeout: nodeTimeout(ttl), settle: settle, history: h, path: path, resource: "drill-" + rand.Text()[:8],
		stopped: map[int]bool{}, events: make(chan told, 1<<14)}
	s.line = line
	var nodes []redlock.NodeStats
	for i := range f.count() {
		nodes = append(nodes, redlock.NodeStats{Node: f.addr(i)})
	}
	s.names = shortNames(nodes)
	return s
}

func (s *stage) prefix() string { return prefixFor(s.ttl) }

func (s *stage) majority() int { return majorityOf(s.fleet.count()) }

// minority is how many nodes may be away without harm.
func (s *stage) minority() int { return s.fleet.count() - s.majority() }

// patience is how long a step waits for what must come: a node that was away may have no vote for a TTL.
func (s *stage) patience() time.Duration { return 2*s.ttl + 2*time.Second }

// until shows events as they come until done, for a while at most, and says whether it was.
func (s *stage) until(within time.Duration, done func() bool) bool {
	end := time.NewTimer(within)
	defer end.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case t := <-s.events:
			s.hear(t)
		case <-look.C:
		case <-end.C:
			return done()
		case <-s.ctx.Done():
			return false
		}
	}
	return true
}

// promise notes whether one was kept. What did not come because the drill was interrupted, broke none.
func (s *stage) promise(name, text string, kept bool) {
	if s.ctx.Err() == nil {
		s.teller.promise(name, text, kept)
	}
}

// step prints what the scenario does next, after what has come so far.
func (s *stage) step(what, format string, args ...any) {
	s.until(0, func() bool { return len(s.events) == 0 })
	s.line.step(what, format, args...)
}

// rest shows events for a while.
func (s *stage) rest(d time.Duration) { s.until(d, func() bool { return false }) }

// meanwhile shows events while f, which ends when the drill does, is under way.
func (s *stage) meanwhile(f func() error) (err error) {
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		defer close(done)
		err = f()
	})
	defer running.Wait()
	for {
		select {
		case t := <-s.events:
			s.hear(t)
		case <-done:
			return err
		}
	}
}

// hear takes note of an event.
func (s *stage) hear(t told) {
	t.by.heard = append(t.by.heard, t.ev)
	if !t.by.quiet && s.met {
		s.show(t.ev)
	}
}

// fault records that something was broken: of a node, of a client, or of what is between both.
func (s *stage) fault(what string, i int, c *client) { s.record(redlocktest.Fault, what, i, c) }

// healed records that it was mended.
func (s *stage) healed(what string, i int, c *client) { s.record(redlocktest.Healed, what, i, c) }

func (s *stage) record(kind redlocktest.Kind, what string, i int, c *client) {
	r := redlocktest.Record{Kind: kind, Text: what}
	if i >= 0 {
		r.Node = s.fleet.addr(i)
	}
	if c != nil {
		r.Client = c.name
	}
	s.history.Add(r)
}

// stop takes nodes away, never more at once than the scenario has said, and none while one is missing that it did not
// stop itself.
func (s *stage) stop(nodes ...int) error {
	for _, i := range nodes {
		if len(s.stopped)+1 > s.most {
			return fmt.Errorf("it would stop node %d while %d are stopped already; this scenario stops %d at most", i+1, len(s.stopped), s.most)
		}
		if err := s.complete(); err != nil {
			return err
		}
		s.stopped[i] = true // also if the command fails: it may have got halfway
		s.fault("stopped", i, nil)
		began := time.Now()
		err := s.meanwhile(func() error { return s.fleet.stop(s.ctx, i) })
		if err != nil {
			return err
		}
		s.line.row(time.Now(), bold, fmt.Sprintf("node %d is stopped", i+1), s.leftText()+since(began))
	}
	return nil
}

// since says how long a command took, if one can notice.
func since(began time.Time) string {
	if took := time.Since(began); took > 100*time.Millisecond {
		return fmt.Sprintf(" (in %.1f s)", took.Seconds())
	}
	return ""
}

func (s *stage) leftText() string {
	return fmt.Sprintf("%d of %d left", s.fleet.count()-len(s.stopped), s.fleet.count())
}

// complete says which node does not answer although the drill has not stopped it.
func (s *stage) complete() error {
	o, real := s.fleet.(*own)
	if !real {
		return nil
	}
	for i := range o.count() {
		if s.stopped[i] {
			continue
		}
		if err := o.answers(s.ctx, i); err != nil && s.ctx.Err() == nil {
			return fmt.Errorf("node %d (%s) does not answer, and it was not the drill that stopped it: %s; mend that first, the drill "+
				"stops no node meanwhile", i+1, o.addr(i), o.redact(err.Error()))
		}
	}
	return nil
}

// start brings a node back.
func (s *stage) start(nodes ...int) error {
	for _, i := range nodes {
		began := time.Now()
		if err := s.meanwhile(func() error { return s.fleet.start(s.ctx, i) }); err != nil {
			return err
		}
		delete(s.stopped, i)
		s.healed("stopped", i, nil)
		s.line.row(time.Now(), bold, fmt.Sprintf("node %d is started", i+1), "it has no vote for a TTL: it may have forgotten locks"+since(began))
	}
	return nil
}

// mend starts what is stopped, whatever has happened to the drill, and says which nodes it could not start.
func (s *stage) mend() error {
	ctx := context.WithoutCancel(s.ctx) // Ctrl-C must not leave nodes stopped
	var errs []error
	for i := range s.fleet.count() {
		if !s.stopped[i] {
			continue
		}
		if err := s.fleet.start(ctx, i); err != nil {
			s.line.said(time.Now(), red, "NOT STARTED", "node %d is still stopped; start it by hand", i+1)
			errs = append(errs, fmt.Errorf("node %d (%s) is still stopped: %w", i+1, s.fleet.addr(i), err))
			continue
		}
		delete(s.stopped, i)
		s.healed("stopped", i, nil)
		s.line.said(time.Now(), bold, fmt.Sprintf("node %d is started", i+1), "the drill leaves nothing stopped")
	}
	return errors.Join(errs...)
}

// last returns the n last nodes.
func (s *stage) last(n int) []int {
	var nodes []int
	for i := s.fleet.count() - n; i < s.fleet.count(); i++ {
		nodes = append(nodes, i)
	}
	return nodes
}

// close ends what the scenario started.
func (s *stage) close() {
	for _, c := range slices.Backward(s.clients) {
		c.close()
	}
	s.clients = nil
}

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// world is one schedule: nodes, machines with clients, the network between them, and what goes wrong.
type world struct {
	plan    plan
	epoch   time.Time
	nodes   []*node
	clients []*client
	check   *checker
	stats   *Stats
	trace   *trace

	ctx    context.Context // ends with the schedule's time
	stop   context.CancelFunc
	quiet  atomic.Bool    // the network does no harm any more
	behind sync.WaitGroup // what happens later: ends of faults, replays
	wires  sync.WaitGroup // connections
}

// now is the virtual time since the schedule began.
func (w *world) now() time.Duration { return time.Since(w.epoch) }

// rng is a source of randomness for one actor, so that what one draws does not depend on the others.
func (w *world) rng(actor, index int) *rand.Rand {
	return rand.New(rand.NewPCG(w.plan.Seed, uint64(actor)<<32|uint64(index)))
}

// The actors.
const (
	actorPlan = iota + 1
	actorLink
	actorWorker
	actorNemesis
	actorNode
	actorChecker
)

// run plays a schedule. It has to be called in a bubble of testing/synctest.
func run(p plan, stats *Stats, tr *trace) []Violation {
	w := &world{plan: p, epoch: time.Now(), stats: stats, trace: tr}
	w.ctx, w.stop = context.WithTimeout(context.Background(), p.Time)
	defer w.stop()
	w.check = newChecker(w)
	for i := range p.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	for i := range p.Clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	w.logf("plan %+v", p)

	// 1. Clients work while the nemesis breaks things.
	var work sync.WaitGroup
	for _, c := range w.clients {
		for i := range p.Workers {
			work.Go(func() { c.work(c.index*p.Workers + i) })
		}
	}
	work.Go(func() { newNemesis(w).run() })
	work.Go(w.check.watch)
	work.Wait()

	// 2. Everything is mended; what is left must go.
	w.quiet.Store(true)
	w.mend()
	w.behind.Wait()
	time.Sleep(p.NodeTimeout + 3*time.Second)
	w.check.leftovers()

	// 3. The end.
	for _, c := range w.clients {
		_ = c.pool.Close()
	}
	for _, n := range w.nodes {
		n.crash()
	}
	for _, c := range w.clients {
		c.bury()
	}
	w.wires.Wait()
	w.behind.Wait()
	stats.Simulated += w.now()
	stats.Schedules++
	return w.check.found
}

// mend takes away what the nemesis left broken.
func (w *world) mend() {
	for _, c := range w.clients {
		c.machine.wake()
		for _, l := range c.links {
			l.mend()
		}
	}
	for _, n := range w.nodes {
		n.mend()
	}
}

// during undoes something later, or when the schedule is over.
func (w *world) during(d time.Duration, undo func()) {
	w.behind.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.ctx.Done():
		}
		undo()
	})
}

func (w *world) logf(format string, args ...any) {
	if w.trace != nil {
		w.trace.add(w.now(), fmt.Sprintf(format, args...))
	}
}

// trace keeps what happened, for a schedule that is looked at.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (t *trace) add(at time.Duration, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%12.6f  %s", at.Seconds(), text))
}

// options are the settings of a pool.
func (w *world) options(c *client) []redlock.Option {
	p := w.plan
	return []redlock.Option{redlock.WithTTL(p.TTL), redlock.WithNodeTimeout(p.NodeTimeout), redlock.WithQuorum(redlock.AtLeast(p.Need)),
		redlock.WithRestartGuard(p.TTL), redlock.WithRetry(p.Retry, 10*p.Retry), redlock.WithLabel(c.name), redlock.WithObserver(c.observer())}
}

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// tour is the drill without a name: all at once, and short. One goroutine does and prints everything; the observer only
// hands events over.
type tour struct {
	teller
	ctx      context.Context
	ttl      time.Duration
	nodes    *redlocktest.Nodes // nil for nodes that it did not start
	urls     []string
	history  *redlocktest.History
	recorder *redlocktest.Recorder // of the holder
	watcher  *redlocktest.Recorder // of the rival
	events   chan redlock.Event    // of the holder
	holder   *redlock.Pool
	rival    *redlock.Pool
	lock     *redlocktest.Holding
	resource string
	count    int  // nodes
	degraded bool // the lock said so
}

// newTour finds or starts the nodes, and opens the clients. The caller closes it.
func newTour(ctx context.Context, line *timeline, urls []string, ttl time.Duration) (*tour, error) {
	d := &tour{ctx: ctx, ttl: ttl, urls: urls, events: make(chan redlock.Event, 1024), resource: "drill-" + rand.Text()[:8],
		history: redlocktest.NewHistory()}
	d.line = line
	if len(urls) == 0 {
		var err error
		if d.nodes, err = redlocktest.New(drillNodes); err != nil {
			return nil, exitf(exitUndone, "cannot start nodes: %v", err)
		}
		d.urls = d.nodes.URLs()
	}
	if err := d.open(); err != nil {
		d.close()
		return nil, exitf(exitUsage, "%s", reasonText(err))
	}
	return d, nil
}

// open makes two clients that know nothing of each other.
func (d *tour) open() (err error) {
	d.recorder, d.watcher = d.history.Client("client A"), d.history.Client("client B")
	opts := func(r *redlocktest.Recorder, o redlock.Observer) []redlock.Option {
		return []redlock.Option{redlock.WithTTL(d.ttl), redlock.WithKeyPrefix(d.prefix()), redlock.WithLabel(r.Name()), redlock.WithObserver(o)}
	}
	heard := both(d.recorder.Observer(), func(ev redlock.Event) { d.events <- ev })
	if d.holder, err = redlock.Open(d.urls, opts(d.recorder, heard)...); err != nil {
		return err
	}
	d.rival, err = redlock.Open(d.urls, opts(d.watcher, d.watcher.Observer())...)
	return err
}

func (d *tour) prefix() string { return prefixFor(d.ttl) }

func (d *tour) close() {
	if d.holder != nil {
		_ = d.holder.Close()
	}
	if d.rival != nil {
		_ = d.rival.Close()
	}
	if d.nodes != nil {
		_ = d.nodes.Close()
	}
}

// introduce says what there is.
func (d *tour) introduce() {
	nodes := d.holder.Stats().Nodes
	d.count, d.names = len(nodes), shortNames(nodes)
	d.line.text(bold, "redlock drill: one lock on %d nodes, TTL %v; %d of them decide", d.count, d.ttl, d.count/2+1)
	for i, n := range nodes {
		d.line.text(dim, "  node %d = %s", i+1, n.Node)
	}
	if d.nodes == nil {
		d.line.text(plain, "These nodes are not the drill's to stop. Left out: one and two nodes away, their return, the loss")
		d.line.text(plain, "with three away, and the recovery. Without --nodes the drill starts nodes of its own and shows them.")
	}
	fmt.Fprintln(d.line.w)
	d.line.head("seconds", "what", "what the lock says")
}

// await prints events as they come until one satisfies want, and returns that. It gives up after a while.
func (d *tour) await(within time.Duration, want func(redlock.Event) bool) (redlock.Event, bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case ev := <-d.events:
			d.show(ev)
			if want(ev) {
				return ev, true
			}
		case <-timer.C:
			return redlock.Event{}, false
		case <-d.ctx.Done():
			return redlock.Event{}, false
		}
	}
}

// named wants an event of that name.
func named(name string) func(redlock.Event) bool {
	return func(ev redlock.Event) bool { return ev.Name == name }
}

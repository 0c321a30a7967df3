package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/internal/seam"
)

// client is a process with a pool and some goroutines that use it.
type client struct {
	w       *world
	index   int
	name    string
	machine *machine
	links   []*link
	pool    *redlock.Pool
	calls   atomic.Int64  // acquiring calls under way
	dead    atomic.Bool   // killed: cut off for good
	trouble time.Duration // until when a fault is felt; guarded by the checker's mutex
}

func newClient(w *world, i int) *client {
	c := &client{w: w, index: i, name: fmt.Sprintf("c%d", i), machine: newMachine(w)}
	var clients []*redis.Client
	for _, n := range w.nodes {
		l := newLink(c, n)
		c.links = append(c.links, l)
		clients = append(clients, redis.NewClient(&redis.Options{Addr: n.name, Dialer: l.dial}))
	}
	seam.Clock = c.machine.clocks
	pool, err := redlock.New(clients, w.options(c)...)
	seam.Clock = nil
	if err != nil {
		panic(err)
	}
	for _, r := range clients {
		_ = r.Close() // the pool has its own
	}
	c.pool = pool
	return c
}

func (c *client) gone() bool { return c.dead.Load() }

// asking is how many nodes have a question of this client that has not been answered.
func (c *client) asking() (nodes int) {
	for _, l := range c.links {
		if l.asked.Load() > 0 {
			nodes++
		}
	}
	return nodes
}

// kill ends the process: nothing of it reaches a node again.
func (c *client) kill() {
	c.dead.Store(true)
	c.w.check.buried(c)
	for _, l := range c.links {
		l.there.shut(c.w.plan.Time * 1000)
		l.back.shut(c.w.plan.Time * 1000)
	}
}

// bury lets go of what a dead process's packets still wait for.
func (c *client) bury() {
	for _, l := range c.links {
		l.there.open()
		l.back.open()
	}
}

func (c *client) observer() redlock.Observer {
	return redlock.Observer{Warning: func(ev redlock.Event) {
		if ev.Err != nil && strings.Contains(ev.Err.Error(), "only the nodes' clocks") {
			c.w.check.clocksOnly()
		}
	}}
}

// Resources: few, so that they are fought for; the last two share a fence counter.
var shared = []string{"a", "b", "s", twin("s")}

// ... and others that are left alone for long, while nodes forget their fences.
var rare = []string{"r0", "r1", "r2", "r3", "r4", "r5"}

// work takes and gives back locks until the schedule ends.
func (c *client) work(id int) {
	r := c.w.rng(actorWorker, id)
	own := fmt.Sprintf("own%d", id)
	for c.w.ctx.Err() == nil && !c.gone() {
		c.machine.thaw()
		if !sleep(c.w.ctx, between(r, 0, c.w.plan.Retry*4)) {
			return
		}
		c.once(r, own)
	}
}

// once is one call and what its lock is used for.
func (c *client) once(r *rand.Rand, own string) {
	p := c.w.plan
	names := []string{pick(r, shared)}
	wait, lonely := r.IntN(4) > 0, false
	switch r.IntN(10) {
	case 0, 1:
		names = append(names, pick(r, shared), pick(r, shared))[:2+r.IntN(2)]
	case 2:
		names, wait, lonely = []string{own}, false, true
	case 3:
		if r.IntN(4) == 0 {
			names = []string{pick(r, rare)}
		}
	}
	opts, limited := c.lockOptions(r)
	ctx, cancel := context.WithTimeout(c.w.ctx, between(r, p.NodeTimeout/4, 2*p.TTL))
	defer cancel()
	if lonely {
		ctx = context.Background()
	}
	h := &hold{c: c, began: c.w.now(), limited: limited}
	var err error
	c.calls.Add(1)
	if wait {
		h.Lock, err = c.pool.MultiLock(ctx, names, opts...)
	} else {
		h.Lock, err = c.pool.TryMultiLock(ctx, names, opts...)
	}
	c.calls.Add(-1)
	if err != nil {
		c.w.stats.failed()
		if lonely && (p.Class == calm || p.Class == minority) && h.began > 4*p.TTL && c.w.ctx.Err() == nil { // a first use takes its time
			c.w.check.report(ruleRefused, "%s asked for %v at %v: %v", c.name, names, h.began, err)
		}
		return
	}
	if c.gone() {
		return
	}
	c.w.check.took(h)
	c.machine.thaw()
	c.use(r, h)
	c.machine.thaw()
	c.unlock(r, h)
}

func (c *client) lockOptions(r *rand.Rand) (opts []redlock.LockOption, limited bool) {
	p := c.w.plan
	switch r.IntN(12) {
	case 0:
		return []redlock.LockOption{redlock.WithLease(p.TTL)}, false
	case 1:
		return []redlock.LockOption{redlock.WithMaxHold(between(r, p.TTL/2, 2*p.TTL))}, true
	case 2:
		return []redlock.LockOption{redlock.WithTTL(p.TTL / 2)}, false
	}
	return nil, false
}

// use holds a lock: mostly for a moment, sometimes past its TTL, sometimes until it is lost.
func (c *client) use(r *rand.Rand, h *hold) {
	p := c.w.plan
	d := between(r, 0, 2*p.Retry)
	often := 20
	if p.Class == isolation {
		often = 4
	}
	switch r.IntN(often) {
	case 0:
		d = between(r, 0, 3*p.TTL)
	case 1:
		d = between(r, 0, p.TTL)
	}
	if h.limited && r.IntN(2) == 0 { // relies on the limit
		d = 3 * p.TTL
	}
	if r.IntN(8) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), between(r, p.NodeTimeout/4, 2*p.NodeTimeout))
		_ = h.Extend(ctx)
		cancel()
		h.busy = h.Err() != nil // it may have been lost a while ago; nobody looked
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-h.Lost():
		c.w.check.lost(h)
	case <-timer.C:
	case <-c.w.ctx.Done():
	}
}

func (c *client) unlock(r *rand.Rand, h *hold) {
	if c.gone() {
		return
	}
	c.w.check.gave(h)
	again := r.IntN(10) == 0
	err := h.Unlock(context.Background())
	if err != nil && again {
		_ = h.Unlock(context.Background())
	}
}

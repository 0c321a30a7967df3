package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// nemesis breaks things at random, within what the library says that it survives.
type nemesis struct {
	w       *world
	rng     *rand.Rand
	victims []*node // the only ones to suffer in a schedule where a minority may be away
	kinds   []fault

	hitNode   *node // by the fault under way, like the two below
	hitClient *client
	lasting   time.Duration
}

// fault is one way to break something; it returns false where that is not possible just now.
type fault struct {
	name   string
	weight int
	do     func(*nemesis) bool
}

func newNemesis(w *world) *nemesis {
	x := &nemesis{w: w, rng: w.rng(actorNemesis, 0), victims: w.nodes}
	switch w.plan.Class {
	case minority:
		x.victims = x.some()
		x.kinds = append(x.kinds, nodeFaults...)
	case storm:
		x.kinds = slices.Concat(nodeFaults, machineFaults, clockFaults[:2])
	case isolation:
		x.kinds = append(x.kinds, machineFaults...)
	case amnesia:
		x.kinds = slices.Concat(crowdFaults, forgetFaults, linkFaults)
	case clocks:
		x.victims = x.some()
		x.kinds = append(x.kinds, clockFaults...)
	}
	return x
}

// some are as many nodes as may be away.
func (x *nemesis) some() []*node {
	return x.shuffled()[:x.w.plan.spare()]
}

// run goes on until the schedule's time is up.
func (x *nemesis) run() {
	for {
		if !sleep(x.w.ctx, between(x.rng, 0, 2*x.w.plan.Calm)) {
			return
		}
		x.w.check.look()
		if len(x.kinds) == 0 || len(x.victims) == 0 {
			continue
		}
		if x.rng.IntN(40) == 0 && !sleep(x.w.ctx, 3*x.w.plan.TTL) { // a time to recover
			return
		}
		x.hit(x.draw())
	}
}

// hit lets a fault happen, and notes until when it is felt.
func (x *nemesis) hit(f fault) {
	x.hitNode, x.hitClient, x.lasting = nil, nil, 0
	if !f.do(x) {
		return
	}
	x.w.stats.fault(f.name)
	if x.hitNode != nil {
		x.w.check.troubled(x.hitNode, x.lasting)
	}
	until := x.w.now() + x.lasting
	x.w.check.mu.Lock()
	defer x.w.check.mu.Unlock()
	if x.hitClient != nil {
		x.hitClient.trouble = max(x.hitClient.trouble, until)
	}
}

func (x *nemesis) draw() fault {
	sum := 0
	for _, f := range x.kinds {
		sum += f.weight
	}
	at := x.rng.IntN(sum)
	for _, f := range x.kinds {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("weights")
}

func (x *nemesis) node() *node {
	x.hitNode = pick(x.rng, x.victims)
	return x.hitNode
}

func (x *nemesis) client() *client {
	x.hitClient = pick(x.rng, x.w.clients)
	return x.hitClient
}

// links are those of a node, of all clients or of one.
func (x *nemesis) links(n *node) (all []*link) {
	only := -1
	if x.rng.IntN(2) == 0 {
		only = x.rng.IntN(len(x.w.clients))
	}
	for _, c := range x.w.clients {
		if only < 0 || c.index == only {
			all = append(all, c.links[n.index])
		}
	}
	return all
}

// spell is how long a fault lasts: mostly short, sometimes longer than a lock lives.
func (x *nemesis) spell() time.Duration {
	ttl := x.w.plan.TTL
	d := between(x.rng, 0, ttl)
	if x.rng.IntN(3) == 0 {
		d = between(x.rng, ttl, 3*ttl)
	}
	x.lasting = max(x.lasting, d)
	return d
}

func (x *nemesis) logf(format string, args ...any) { x.w.logf("  ! "+format, args...) }

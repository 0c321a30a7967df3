package sim

import "time"

// What the nemesis must not do, for nobody says that it is survived.

// mayForget says whether a node may lose its fence counters: a majority must keep theirs.
func (x *nemesis) mayForget(n *node) bool {
	lacking := 0
	for _, other := range x.w.nodes {
		if other != n && other.lacks() {
			lacking++
		}
	}
	if lacking >= x.w.plan.Nodes-(x.w.plan.Nodes/2+1) {
		return false
	}
	n.forgot()
	return true
}

// restart ends a node's process and begins a new one, at once or after a while.
func (x *nemesis) restart(k keeps) bool {
	n := x.node()
	if n.isDown() || (k == nothing || k == snapshot) && !x.mayForget(n) {
		return false
	}
	x.again(n, k)
	return true
}

// blocked says whether enough nodes beside n hold the token for n to forget it: nobody else could get a quorum, now or until
// it would have run out there. One that was just given it back does not count: its client does not know of that yet.
func (x *nemesis) blocked(n *node, key, token string) bool {
	holding, until := 0, n.said(token).until-x.w.plan.TTL/100 // the lock ends by the drift allowance earlier
	for _, other := range x.w.nodes {
		if other != n && other.Owner(key) == token && other.said(token).until > max(until, x.w.now()) {
			holding++
		}
	}
	return holding > x.w.plan.spare()
}

// evict deletes one key, as an eviction or an operator does.
func (x *nemesis) evict(n *node) bool {
	for _, key := range shared {
		token := n.Owner(key)
		if token == "" || !x.blocked(n, key, token) {
			continue
		}
		x.logf("%s forgets %s of %.6s", n.name, key, token)
		n.Do(func() { delete(n.Keys, key) })
		return true
	}
	return false
}

// wrong does something to a node's clock at a moment at which it may forget all that it has.
func (x *nemesis) wrong(do func(*node)) bool {
	n := x.node()
	for range 50 {
		if x.mayLose(n) {
			do(n)
			return true
		}
		if !sleep(x.w.ctx, x.w.plan.Delay) {
			return false
		}
	}
	return false
}

func (x *nemesis) mayLose(n *node) bool {
	for key, token := range n.tokens() {
		if !x.blocked(n, key, token) {
			return false
		}
	}
	return true
}

// step is by how much a clock is set: from a little more than can be seen to hours.
func (x *nemesis) step() time.Duration {
	ttl := x.w.plan.TTL
	return pick(x.rng, []time.Duration{between(x.rng, ttl/50, ttl), between(x.rng, ttl, 3*ttl), between(x.rng, 0, 5*time.Hour)})
}

func (x *nemesis) speed(rate float64) bool {
	return x.wrong(func(n *node) {
		x.logf("%s clock runs at %+.3f", n.name, rate)
		n.Speed(rate)
		x.w.during(x.spell(), func() { n.Speed(0) })
	})
}

package sim

// crowdFaults happen to many nodes: a power cut, an upgrade, an operator's loop over all hosts. As long as no majority
// votes no new lock is to be had, and those that are held end by their deadline.
var crowdFaults = []fault{
	{"many nodes restarted with their data", 2, func(x *nemesis) bool { return x.crowd(everything) }},
	{"many nodes restarted without their keys", 2, func(x *nemesis) bool { return x.crowd(keysGone) }},
	{"nodes restarted one after the other", 3, func(x *nemesis) bool { return x.rolling() }},
	{"all nodes flushed", 1, func(x *nemesis) bool {
		if x.rng.IntN(4) > 0 {
			return false
		}
		if !sleep(x.w.ctx, 2*x.w.plan.TTL) { // they have been up for long, and do not look as if they had just been started
			return false
		}
		x.logf("all nodes flushed")
		for _, n := range x.w.nodes {
			n.forgot()
			n.flush()
		}
		x.w.check.clocksOnly()
		return true
	}},
}

// crowd restarts more nodes than may be away, at once; each is back at once or after a while.
func (x *nemesis) crowd(k keeps) bool {
	all := x.shuffled()
	for _, n := range all[:x.w.plan.spare()+1+x.rng.IntN(x.w.plan.Need)] {
		x.again(n, k)
	}
	return true
}

// rolling restarts all nodes, mostly each when the one before has a vote again.
func (x *nemesis) rolling() bool {
	k := pick(x.rng, []keeps{everything, keysGone, nothing})
	for _, n := range x.shuffled() {
		if k != nothing || x.mayForget(n) {
			x.again(n, k)
		}
		pause := between(x.rng, 0, x.w.plan.TTL*3/2)
		if x.rng.IntN(4) > 0 {
			pause += x.w.plan.TTL
		}
		if !sleep(x.w.ctx, pause) {
			break
		}
	}
	return true
}

// again restarts a node that runs.
func (x *nemesis) again(n *node, k keeps) {
	if n.isDown() {
		return
	}
	x.logf("%s restarts, keeping %v", n.name, k)
	n.crash()
	if x.rng.IntN(2) == 0 {
		n.start(k)
		return
	}
	d := x.spell()
	x.w.check.troubled(n, d) // now, for the fault may go on
	x.w.during(d, func() { n.start(k) })
}

func (x *nemesis) shuffled() []*node {
	all := append([]*node(nil), x.w.nodes...)
	x.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

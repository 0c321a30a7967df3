package sim

import "slices"

// nodeFaults happen to servers and to the network right before them.
var nodeFaults = slices.Concat(otherFaults, forgetFaults, linkFaults)

// forgetFaults make a node forget, where its clients can see it.
var forgetFaults = []fault{
	{"node restarted with its data", 2, func(x *nemesis) bool { return x.restart(everything) }},
	{"node restarted empty", 3, func(x *nemesis) bool { return x.restart(nothing) }},
	{"old snapshot came back", 2, func(x *nemesis) bool { return x.restart(snapshot) }},
	{"node restarted without its keys", 2, func(x *nemesis) bool { return x.restart(keysGone) }},
	{"snapshot taken", 3, func(x *nemesis) bool { x.node().save(); return true }},
	{"flush", 2, func(x *nemesis) bool {
		n := x.node()
		if !x.mayForget(n) {
			return false
		}
		x.logf("%s flushed", n.name)
		n.flush()
		return true
	}},
}

// linkFaults happen to connections, and to the network right before a node.
var linkFaults = []fault{
	{"connections cut", 3, func(x *nemesis) bool {
		n := x.node()
		x.logf("%s connections cut", n.name)
		n.cut()
		return true
	}},
	{"connections refused", 1, func(x *nemesis) bool {
		n := x.node()
		x.logf("%s refuses connections", n.name)
		n.setRefuse(true)
		n.cut()
		x.w.during(x.spell(), func() { n.setRefuse(false) })
		return true
	}},
	{"nothing gets to a node", 3, func(x *nemesis) bool {
		n, d := x.node(), x.spell()
		for _, l := range x.links(n) {
			x.logf("%s -> %s stuck for %v", l.c.name, n.name, d)
			l.close(&l.there, d)
		}
		return true
	}},
	{"nothing comes back from a node", 3, func(x *nemesis) bool {
		n, d := x.node(), x.spell()
		for _, l := range x.links(n) {
			x.logf("%s <- %s stuck for %v", l.c.name, n.name, d)
			l.close(&l.back, d)
		}
		return true
	}},
	{"slow link", 3, func(x *nemesis) bool {
		n := x.node()
		d := between(x.rng, 0, 2*x.w.plan.NodeTimeout)
		for _, l := range x.links(n) {
			x.logf("%s - %s slow by %v", l.c.name, n.name, d)
			l.slow.Store(int64(d))
			x.w.during(x.spell(), func() { l.slow.Store(0) })
		}
		return true
	}},
	{"bad link", 6, func(x *nemesis) bool {
		n := x.node()
		share := 1 + x.rng.Int64N(3000)
		for _, l := range x.links(n) {
			x.logf("%s - %s bad: %d", l.c.name, n.name, share)
			l.worse.Store(share)
			x.w.during(x.spell(), func() { l.worse.Store(0) })
		}
		return true
	}},
}

// otherFaults are what else happens to a node.
var otherFaults = []fault{
	{"node frozen", 4, func(x *nemesis) bool {
		n, d := x.node(), x.spell()
		x.logf("%s frozen for %v", n.name, d)
		n.frozen.shut(d)
		return true
	}},
	{"script flush", 1, func(x *nemesis) bool {
		n := x.node()
		n.Do(func() { clear(n.Scripts) })
		return true
	}},
	{"key evicted unseen", 1, func(x *nemesis) bool {
		n := x.node()
		for range 20 {
			if x.evict(n) {
				return true
			}
			if !sleep(x.w.ctx, x.w.plan.Delay) {
				return false
			}
		}
		return false
	}},
	{"error replies", 2, func(x *nemesis) bool {
		n := x.node()
		what := pick(x.rng, []string{"OOM command not allowed when used memory > 'maxmemory'.", "LOADING Redis is loading the dataset in memory",
			"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "BUSY Redis is busy running a script.",
			"READONLY You can't write against a read only replica."})
		which := pick(x.rng, [][]string{{"acquire"}, {"renew"}, {"acquire", "renew"}, {"acquire", "renew", "release"}, {"mark"}})
		x.logf("%s answers %v with %.8s", n.name, which, what)
		n.Do(func() {
			for _, w := range which {
				n.Errs[w] = what
			}
		})
		x.w.during(x.spell(), func() {
			n.Do(func() {
				for _, w := range which {
					delete(n.Errs, w)
				}
			})
		})
		return true
	}},
}

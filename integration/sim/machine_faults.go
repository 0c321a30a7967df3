package sim

// machineFaults happen to clients.
var machineFaults = []fault{
	{"client frozen", 4, func(x *nemesis) bool {
		c, d := x.client(), x.spell()
		x.logf("%s frozen for %v", c.name, d)
		c.machine.freeze(d)
		return true
	}},
	{"client suspended", 3, func(x *nemesis) bool {
		c, d := x.client(), x.spell()
		x.logf("%s suspended for %v", c.name, d)
		c.machine.suspend(d)
		if d > x.w.plan.TTL {
			x.w.check.slept(c)
		}
		return true
	}},
	{"client suspended in a call", 3, func(x *nemesis) bool {
		c, d := x.client(), x.w.plan.TTL+x.spell()
		for range 100 {
			if c.calls.Load() > 0 {
				x.logf("%s suspended in a call for %v", c.name, d)
				c.machine.suspend(d)
				x.w.check.slept(c)
				return true
			}
			if !sleep(x.w.ctx, x.w.plan.Delay/2) {
				return false
			}
		}
		return false
	}},
	{"client slow", 3, func(x *nemesis) bool {
		c := x.client()
		slow := between(x.rng, 0, x.w.plan.NodeTimeout/2)
		x.logf("%s slow by %v", c.name, slow)
		for _, l := range c.links {
			l.slow.Store(int64(slow))
			x.w.during(x.spell(), func() { l.slow.Store(0) })
		}
		return true
	}},
	{"client slow, and then cut off", 4, func(x *nemesis) bool {
		c := x.client()
		slow := between(x.rng, x.w.plan.NodeTimeout/4, x.w.plan.NodeTimeout/2)
		d := x.w.plan.TTL + x.spell()
		x.lasting = d + 2*slow
		x.logf("%s slow by %v, then cut off for %v", c.name, slow, d)
		for _, l := range c.links {
			l.slow.Store(int64(slow))
		}
		x.w.during(between(x.rng, 0, 2*slow), func() { // what has arrived by then is answered
			for _, l := range c.links {
				l.close(&l.there, d)
			}
		})
		x.w.during(2*slow, func() {
			for _, l := range c.links {
				l.slow.Store(0)
			}
		})
		return true
	}},
	{"client asleep in a round", 4, func(x *nemesis) bool { // what it asked is answered before it has looked at its clocks
		c := x.client()
		slow := between(x.rng, x.w.plan.NodeTimeout/8, x.w.plan.NodeTimeout/2)
		d := between(x.rng, x.w.plan.TTL/3, x.w.plan.TTL)
		for _, l := range c.links {
			l.slow.Store(int64(slow))
			x.w.during(x.w.plan.TTL, func() { l.slow.Store(0) })
		}
		x.lasting = x.w.plan.TTL + d
		for range 200 {
			if !sleep(x.w.ctx, x.w.plan.TTL/400) {
				return false
			}
			if x.w.check.holds(c) && c.asking() > x.w.plan.Nodes/2 {
				break
			}
		}
		if x.rng.IntN(2) == 0 {
			x.logf("%s slow by %v, and frozen for %v", c.name, slow, d)
			c.machine.freeze(d)
			return true
		}
		x.logf("%s slow by %v, and suspended for %v", c.name, slow, d)
		c.machine.suspend(d)
		x.w.check.look()
		return true
	}},
	{"client paused with its clocks", 2, func(x *nemesis) bool {
		c, d := x.client(), x.spell()
		if c.machine.standing() > 0 {
			return false
		}
		x.logf("%s paused for %v", c.name, d)
		c.machine.pause(d)
		return true
	}},
	{"client cut off", 4, func(x *nemesis) bool {
		c, d := x.client(), x.spell()
		x.logf("%s cut off for %v", c.name, d)
		for _, l := range c.links {
			if x.rng.IntN(8) > 0 {
				l.close(&l.there, d)
				l.close(&l.back, d)
			}
		}
		return true
	}},
	{"client cut off, one way", 4, func(x *nemesis) bool {
		c, d := x.client(), x.spell()
		toNodes := x.rng.IntN(2) == 0
		x.logf("%s cut off one way (to the nodes: %v) for %v", c.name, toNodes, d)
		for _, l := range c.links {
			if toNodes {
				l.close(&l.there, d)
			} else {
				l.close(&l.back, d)
			}
		}
		return true
	}},
	{"client killed", 1, func(x *nemesis) bool {
		c := x.client()
		if x.rng.IntN(10) > 0 || c.index < 2 {
			return false
		}
		x.logf("%s killed", c.name)
		c.kill()
		return true
	}},
}

// clockFaults happen to nodes' clocks, where what a node forgets by that is still on enough others.
var clockFaults = []fault{
	{"clock stepped forward", 3, func(x *nemesis) bool {
		d := x.step()
		return x.wrong(func(n *node) { x.logf("%s clock + %v", n.name, d); n.Step(d) })
	}},
	{"clock stepped back", 3, func(x *nemesis) bool {
		d := x.step()
		return x.wrong(func(n *node) { x.logf("%s clock - %v", n.name, d); n.setBack(d) })
	}},
	{"clock too fast", 2, func(x *nemesis) bool { return x.speed(0.02 + 0.18*x.rng.Float64()) }},
	{"clock too slow", 2, func(x *nemesis) bool { return x.speed(-0.02 - 0.18*x.rng.Float64()) }},
}

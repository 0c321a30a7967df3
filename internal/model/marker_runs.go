package main

// markerBase is one node, which is then a quorum by itself, tended by two clients, with every fault that the marker
// shows.
func markerBase() markerRules {
	return markerRules{nodes: 1, clients: 2, guard: 2, writes: 2,
		restarts: true, snapshots: true, flushes: true, marks: true}
}

// markerFlushed is the smallest of these: one process that is flushed.
func markerFlushed() markerRules {
	return markerRules{nodes: 1, clients: 2, guard: 2, writes: 2, flushes: true}
}

// markerPool is a pool of several nodes that restart empty, for the first use.
func markerPool(nodes int) markerRules {
	return markerRules{nodes: nodes, clients: 1, guard: 2, writes: 1, restarts: true}
}

// markerRun changes rules and says what that must lead to.
func markerRun(name string, convicted bool, says string, r markerRules, change func(*markerRules)) run {
	change(&r)
	return run{name: "marker/" + name, says: says, convicted: convicted,
		do: func(limit int) result { return explore(r, limit) }}
}

func markerRuns() []run {
	base, flushed, pool := markerBase(), markerFlushed(), markerPool(3)
	return []run{
		markerRun("safe", false, "restarts, old snapshots, FLUSHALL, clock steps seen; two clients", base,
			func(*markerRules) {}),
		markerRun("safe/one-client", false, "the same with one client", base, func(r *markerRules) { r.clients = 1 }),
		markerRun("safe/guard3", false, "a guard of 3 ticks, restarts and FLUSHALL", base,
			func(r *markerRules) { r.guard, r.snapshots, r.marks = 3, false, false }),
		markerRun("safe/flushed", false, "FLUSHALL only", flushed, func(*markerRules) {}),
		markerRun("first-use", false, "three nodes restart empty", pool, func(*markerRules) {}),
		markerRun("first-use/shortest", false, "the same, a guard of one tick", pool,
			func(r *markerRules) { r.guard = 1 }),
		markerRun("first-use/two-clients", false, "three nodes, two clients", pool,
			func(r *markerRules) { r.clients = 2 }),
		markerRun("first-use/two-nodes", false, "two nodes, FLUSHALL, two clients", markerPool(2),
			func(r *markerRules) { r.flushes, r.clients = true, 2 }),
		markerRun("first-use/flushed", false, "three nodes restart or are flushed", pool,
			func(r *markerRules) { r.flushes = true }),
		markerRun("first-use/replaced", false, "one of three becomes an old, unused server", pool,
			func(r *markerRules) { r.replaces = 1 }),
		markerRun("first-use/clock", false, "the clock of one of three is set forward", pool,
			func(r *markerRules) { r.steps = 1 }),
		markerRun("spare/some-unused", false, "first use of some nodes, if uptimes are true", pool,
			func(r *markerRules) { r.someUnused = true }),
		markerRun("spare/guard-per-client", false, "each client's own guard, if nodes only restart", base,
			func(r *markerRules) { r.guardPerClient, r.flushes, r.marks, r.writes = true, false, false, 1 }),

		markerRun("guard-per-client", true, "each client counts a guard from its connecting", flushed,
			func(r *markerRules) { r.guardPerClient = true }),
		markerRun("stale-run", true, "the run id of an earlier connection is kept", base,
			func(r *markerRules) { r.staleRun = true }),
		markerRun("missing-is-unused", true, "where all markers are missing is first use", flushed,
			func(r *markerRules) { r.missingIsUnused = true }),
		markerRun("missing-is-unused/three", true, "the same on three nodes", pool,
			func(r *markerRules) { r.missingIsUnused, r.restarts, r.flushes = true, false, true }),
		markerRun("wall-clock", true, "the marker holds a time; restart, then the clock is set forward", base,
			func(r *markerRules) { r.wallClock, r.steps, r.snapshots, r.flushes = true, 1, false, false }),
		markerRun("heals-early", true, "the guard is watched for a tick less", base,
			func(r *markerRules) { r.healsEarly = true }),
		markerRun("same-nonce", true, "nonces repeat", flushed, func(r *markerRules) { r.sameNonce = true }),
		markerRun("overwrites", true, "writes do not compare", flushed, func(r *markerRules) { r.overwrites = true }),
		markerRun("resends", true, "a write is sent again as it was", flushed,
			func(r *markerRules) { r.resends = true }),
		markerRun("no-witness", true, "a missing marker is flagged new without the witness", flushed,
			func(r *markerRules) { r.noWitness = true }),
		markerRun("no-uptime", true, "first use does not ask for the uptime", base,
			func(r *markerRules) { r.noUptime = true }),
		markerRun("no-uptime/three", true, "the same, all of three nodes restart", pool,
			func(r *markerRules) { r.noUptime = true }),
		markerRun("watch-from-send", true, "the guard is watched from the sending of the nonce", flushed,
			func(r *markerRules) { r.watchFromSend = true }),
		markerRun("some-unused/replaced", true, "first use of some nodes; one becomes an old, unused server", pool,
			func(r *markerRules) { r.someUnused, r.replaces = true, 1 }),
		markerRun("some-unused/clock", true, "first use of some nodes; one restarts and its clock is set forward", pool,
			func(r *markerRules) { r.someUnused, r.steps = true, 1 }),
		markerRun("old-looks/replaced", true, "first use trusts old looks; one node is replaced", pool,
			func(r *markerRules) { r.guard, r.oldLooks, r.replaces = 1, true, 1 }),
		markerRun("old-looks/clock", true, "first use trusts old looks; one node's clock is set forward", pool,
			func(r *markerRules) { r.guard, r.oldLooks, r.steps = 1, true, 1 }),

		markerRun("limit/all-clocks", true, "all nodes restart empty and all clocks are set forward", markerPool(2),
			func(r *markerRules) { r.steps = 2 }),
		markerRun("limit/all-replaced", true, "all nodes become old, unused servers within a guard", markerPool(2),
			func(r *markerRules) { r.replaces = 2 }),
		markerRun("limit/script-flush", true, "SCRIPT FLUSH and FLUSHALL on all nodes", flushed,
			func(r *markerRules) { r.forgets = true }),
		markerRun("limit/rollback", true, "old data in the same process, with its own marker", flushed,
			func(r *markerRules) { r.snapshots, r.rollbacks = true, true }),
	}
}

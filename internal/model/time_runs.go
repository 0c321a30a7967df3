package main

// timedBase is the protocol with three nodes that never restart.
func timedBase() timedRules {
	return timedRules{nodes: 3, ttl: 3, timeout: 1, latest: 2, guard: 3}
}

// timedRun changes the base and says what that must lead to.
func timedRun(name string, convicted bool, says string, change func(*timedRules)) run {
	r := timedBase()
	change(&r)
	return run{name: "time/" + name, says: says, convicted: convicted,
		do: func(limit int) result { return explore(r, limit) }}
}

// shortest makes the model small where two ticks are enough to tell.
func (r *timedRules) shortest() { r.ttl, r.guard, r.latest = 2, 2, 1 }

// undoRun does the same for the undo.
func undoRun(name string, convicted bool, says string, change func(*timedUndo)) run {
	r := timedUndo{ttl: 3, latest: 2}
	change(&r)
	return run{name: "time/undo/" + name, says: says, convicted: convicted,
		do: func(limit int) result { return explore(r, limit) }}
}

func timeRuns() []run {
	return []run{
		timedRun("safe", false, "the protocol, no restarts", func(*timedRules) {}),
		timedRun("safe/restarts", false, "nodes restart empty without end",
			func(r *timedRules) { r.restarts = endless }),
		timedRun("safe/shortest", false, "a TTL of 2 ticks, restarts without end",
			func(r *timedRules) { r.shortest(); r.restarts = endless }),
		timedRun("safe/one-restart", false, "one restart", func(r *timedRules) { r.restarts = 1 }),
		timedRun("safe/ttl5", false, "a TTL of 5 ticks", func(r *timedRules) { r.ttl, r.guard = 5, 5 }),
		timedRun("safe/ttl4-restart", false, "a TTL of 4 ticks, one restart",
			func(r *timedRules) { r.ttl, r.guard, r.restarts = 4, 4, 1 }),
		timedRun("safe/drift", false, "keys may end a tick early, validity is shorter by a tick; one restart",
			func(r *timedRules) { r.ttl, r.guard, r.drift, r.restarts = 4, 4, 1, 1 }),
		timedRun("safe/unseen", false, "a key vanishes unseen in each TTL: a lock on all nodes survives",
			func(r *timedRules) { r.unseen = true }),
		timedRun("safe/5nodes", false, "five nodes", func(r *timedRules) { r.nodes = 5 }),
		timedRun("spare/node-timeout", false, "a vote later than the node timeout may decide: the deadline guards",
			func(r *timedRules) { r.noNodeTimeout, r.latest = true, 3 }),
		timedRun("spare/refill-votes", false, "a refill on a steady node may vote: who voted there has run out",
			func(r *timedRules) { r.refillVotes, r.restarts = true, endless }),
		timedRun("spare/refill-votes-unseen", false, "the same where keys vanish unseen",
			func(r *timedRules) { r.refillVotes, r.unseen = true, true }),
		timedRun("spare/unsteady-writes", false, "an acquire may write on an unsteady node, without a vote",
			func(r *timedRules) { r.unsteadyWrites, r.restarts = true, endless }),

		timedRun("no-elapsed-check", true, "the clock is not read after the last reply",
			func(r *timedRules) { r.noElapsedCheck = true }),
		timedRun("from-reply", true, "validity counts from the reply", func(r *timedRules) { r.fromReply = true }),
		timedRun("late-count", true, "a renewal counted after the deadline moves it",
			func(r *timedRules) { r.lateCount = true }),
		timedRun("fewer-renew", true, "the deadline follows one node of three",
			func(r *timedRules) { r.fewerRenew = true }),
		timedRun("no-drift", true, "keys may end a tick early, validity is not shortened",
			func(r *timedRules) { r.drift, r.ignoresDrift = 1, true }),
		timedRun("no-guard", true, "a node that forgot votes at once",
			func(r *timedRules) { r.guard, r.restarts = 0, 1 }),
		timedRun("unsteady-acquires", true, "a node in its guard votes in acquires",
			func(r *timedRules) { r.unsteadyAcquires, r.restarts = true, 1 }),
		timedRun("short-guard", true, "the guard is a tick shorter than the TTL",
			func(r *timedRules) { r.guard, r.restarts = 2, 1 }),
		timedRun("unsteady-renews", true, "a node in its guard votes in renewals",
			func(r *timedRules) { r.shortest(); r.unsteadyRenews, r.restarts = true, 1 }),
		timedRun("unsteady-refill-votes", true, "a refill on a node in its guard votes",
			func(r *timedRules) { r.shortest(); r.refillVotes, r.unsteadyRenews, r.restarts = true, true, 1 }),
		timedRun("bare-quorum", true, "a lock without margin does not survive a key that vanishes unseen",
			func(r *timedRules) { r.unseen, r.trustsBareQuorum = true, true }),
		timedRun("old-margin", true, "a margin is believed to last, but what it counts runs out node by node",
			func(r *timedRules) { r.unseen, r.trustsOldMargin = true, true }),

		undoRun("safe", false, "a node crossed off the undo list is free of the token for good", func(*timedUndo) {}),
		undoRun("no-latest", true, "requests create keys at any age", func(r *timedUndo) { r.noLatest = true }),
		undoRun("one-release", true, "one confirmed release is enough, on any connection",
			func(r *timedUndo) { r.oneRelease = true }),
		undoRun("by-reply", true, "a release sent before the latest second, confirmed after it, is enough",
			func(r *timedUndo) { r.byReply = true }),
		undoRun("still-renews", true, "a renewal is sent for a dead handle",
			func(r *timedUndo) { r.stillRenews = true }),
		undoRun("gives-up-early", true, "an entry is dropped with the latest second",
			func(r *timedUndo) { r.giveUpEarly = true }),
		undoRun("prolongs-late", true, "renewals prolong at any age, entries are dropped a TTL after the latest second",
			func(r *timedUndo) { r.prolongs = true }),
	}
}

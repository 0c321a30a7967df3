package main

import "fmt"

// fault is what can happen to node i by itself.
func (r markerRules) fault(s markerState, i int, emit func(string, markerState)) {
	n := s.nodes[i]
	change := func(what string, to markerNode) {
		after := s
		after.nodes[i] = to
		emit(fmt.Sprintf("node %d %s", i+1, what), after)
	}
	if r.snapshots {
		to := n
		to.saved = n.marker
		change("saves a snapshot", to)
		change("restarts from its snapshot", r.restarted(n, n.saved))
	}
	if r.restarts {
		change("restarts empty", r.restarted(n, markerValue{}))
	}
	if r.flushes {
		to := n
		to.markerMemory = markerMemory{}
		change("is flushed", to)
	}
	if r.forgets {
		to := n
		to.witness = false
		change("forgets its scripts", to)
	}
	if r.rollbacks {
		to := n
		to.markerMemory = markerMemory{marker: n.saved}
		change("gets its snapshot in the same process", to)
	}
	if r.steps > s.count(func(n markerNode) bool { return n.ahead }) && !n.ahead {
		to := n
		to.ahead = true
		if r.wallClock && to.marker.kind == markerWaits && to.marker.run == to.run {
			to.marker = markerValue{markerSteady, to.run, 0}
		}
		change("has its clock set forward by a guard", to)
	}
	if r.replaces > s.count(func(n markerNode) bool { return n.old }) && !n.old {
		to := r.restarted(n, markerValue{})
		to.uptime, to.old = r.guard, true
		change("is now another server, old and never used", to)
	}
}

func (s markerState) count(is func(markerNode) bool) int {
	count := 0
	for _, n := range s.nodes {
		if is(n) {
			count++
		}
	}
	return count
}

// restarted is n in a new process that found marker on its disk. What was on its way is gone with the connections.
func (r markerRules) restarted(n markerNode, marker markerValue) markerNode {
	fresh := n.unusedRun()
	to := markerNode{run: fresh, saved: n.saved, old: n.old}
	to.marker = marker
	if r.staleRun {
		to.views = n.views
	}
	return to
}

// deliver lets write w reach node i, or its reply the client; or the reply gets lost.
func (r markerRules) deliver(s markerState, i, w int, emit func(string, markerState)) {
	write := s.nodes[i].writes[w]
	name := fmt.Sprintf("%s of %c", write.what(), 'A'+write.by)
	switch write.way {
	case markerSent:
		r.applyWrite(s, i, w, name, emit)
	case markerReply:
		lost := s
		lost.nodes[i].writes[w] = markerWrite{}
		emit("the reply is lost: "+name, lost)
		emit("confirmed: "+name, r.confirm(s, i, w))
	}
}

// applyWrite does the MULTI: SCRIPT EXISTS, SCRIPT LOAD, compare-and-set.
func (r markerRules) applyWrite(s markerState, i, w int, name string, emit func(string, markerState)) {
	n := &s.nodes[i]
	write := &n.writes[w]
	write.known = n.witness && !r.noWitness
	n.witness = true
	if n.marker != write.from && !r.overwrites {
		*write = markerWrite{}
		emit(fmt.Sprintf("node %d refuses %s", i+1, name), s)
		return
	}
	n.marker = write.to
	write.way = markerReply
	emit(fmt.Sprintf("node %d does %s", i+1, name), s)
	if spare := n.spare(r.writes); r.resends && spare >= 0 {
		again := s
		copied := *write
		copied.way, copied.known = markerSent, false
		again.nodes[i].writes[spare] = copied
		emit(fmt.Sprintf("node %d does %s, which was sent twice", i+1, name), again)
	}
}

// spare is a place for one more write; -1 if there is none.
func (n markerNode) spare(places int) int {
	for w := range places {
		if n.writes[w].way == markerNoWrite {
			return w
		}
	}
	return -1
}

func (w markerWrite) what() string {
	kinds := [...]string{"missing", "a nonce", "a nonce flagged new", "steady"}
	old := ""
	if w.from.kind != markerMissing && w.from.run != w.to.run {
		old = " of another run"
	}
	return fmt.Sprintf("the write of %s for %s%s", kinds[w.to.kind], kinds[w.from.kind], old)
}

package main

import "fmt"

// tend is what client c does about node i: connect, look at the marker and put it right, end a guard.
func (r markerRules) tend(s markerState, i, c int, emit func(string, markerState)) {
	n := s.nodes[i]
	v := n.views[c]
	name := string(rune('A' + c))
	if v.run == 0 {
		s.nodes[i].views[c].run = n.run
		emit(fmt.Sprintf("%s connects to node %d", name, i+1), s)
		return
	}
	r.look(s, i, c, name, emit)
	enough := r.guard
	if r.healsEarly {
		enough--
	}
	if v.nonce.kind != markerMissing && v.watched >= enough {
		r.send(s, i, c, v.nonce, markerValue{markerSteady, v.run, 0}, emit)
	}
}

// look reads the marker. One that is missing or of another run is replaced by a nonce, a nonce of this run is watched.
func (r markerRules) look(s markerState, i, c int, name string, emit func(string, markerState)) {
	n := s.nodes[i]
	v := &s.nodes[i].views[c]
	ours := n.marker.kind != markerMissing && n.marker.run == v.run
	switch {
	case !ours:
		r.send(s, i, c, n.marker, r.nonce(n, v.run, markerWaits), emit)
	case n.marker.kind == markerSteady:
		if r.marks {
			r.send(s, i, c, n.marker, r.nonce(n, v.run, markerWaits), emit)
		}
	case v.nonce != n.marker:
		v.nonce, v.watched = n.marker, 0
		emit(fmt.Sprintf("%s watches node %d", name, i+1), s)
	}
}

func (r markerRules) nonce(n markerNode, run, kind uint8) markerValue {
	if r.sameNonce {
		return markerValue{kind, run, 1}
	}
	return markerValue{kind, run, n.unusedNonce()}
}

// send puts a write on its way.
func (r markerRules) send(s markerState, i, c int, from, to markerValue, emit func(string, markerState)) {
	n := &s.nodes[i]
	spare := n.spare(r.writes)
	if spare < 0 {
		return
	}
	n.writes[spare] = markerWrite{way: markerSent, by: uint8(c), from: from, to: to}
	if v := &n.views[c]; r.watchFromSend && to.kind != markerSteady {
		v.nonce, v.watched = to, 0
	}
	emit(fmt.Sprintf("%c sends node %d %s", 'A'+c, i+1, n.writes[spare].what()), s)
}

// confirm lets the client see that its write w was done: a nonce is watched from now on; and if the process did not
// know the witness, the client says so with a second nonce.
func (r markerRules) confirm(s markerState, i, w int) markerState {
	n := &s.nodes[i]
	write := n.writes[w]
	n.writes[w] = markerWrite{}
	v := &n.views[write.by]
	if write.to.kind == markerSteady {
		v.nonce, v.watched = markerValue{}, 0
		return s
	}
	if v.nonce != write.to { // a client that watches from the sending is further
		v.nonce, v.watched = write.to, 0
	}
	if write.to.kind == markerWaits && !write.known {
		to := r.nonce(*n, write.to.run, markerUnused)
		n.writes[w] = markerWrite{way: markerSent, by: write.by, from: write.to, to: to}
	}
	return s
}

// firstUse makes all nodes steady at once if all are unused and have run for a guard. There must be one moment at which
// all were unused: the client looks at all of them again after it saw the last one, and the nonces must be the same.
func (r markerRules) firstUse(s markerState, c int, emit func(string, markerState)) {
	to, ready := s, 0
	for i := range r.nodes {
		n := &to.nodes[i]
		v := n.views[c]
		from := v.nonce
		unused := from.kind == markerUnused && (from == n.marker || r.oldLooks)
		if r.missingIsUnused && n.marker.kind == markerMissing {
			from, unused = markerValue{}, true
		}
		runsLong := n.uptime >= r.guard || n.ahead || r.noUptime
		spare := n.spare(r.writes)
		if v.run == 0 || !unused || !runsLong || spare < 0 {
			continue
		}
		ready++
		steady := markerValue{markerSteady, v.run, 0}
		n.writes[spare] = markerWrite{way: markerSent, by: uint8(c), from: from, to: steady}
	}
	if ready == r.nodes || r.someUnused && ready > 0 {
		emit(fmt.Sprintf("%c takes the unused nodes into use", 'A'+c), to)
	}
}

package main

import "fmt"

// The restart marker: nodes that forget in every way, clients that tend their markers, and one lock with a rival that
// would like to have it. A token's life is at most a guard, so the lock stands for every lock that a node may have
// forgotten. It is taken and renewed at one instant; how a round is spread over time is the business of the lock in
// time. What a node forgets it forgets altogether, so a snapshot never brings the lock's key back: that only helps.
//
// Time is a row of ticks. Run ids and nonces are compared and never ordered, so a new one takes the first number that
// nothing mentions any more; and states that differ only in these numbers are one. So restarts and nonces are without
// end and the states are not.

// markerRules are the numbers of a model, the faults that may happen in it, and the rules of the protocol that it
// breaks.
type markerRules struct {
	nodes, clients int
	guard          uint8
	writes         int // most writes on their way to a node

	restarts  bool // empty
	snapshots bool // a restart may bring back the memory of an earlier time
	flushes   bool // FLUSHALL: the memory is gone, the process and its scripts are not
	steps     int  // on so many nodes the clock may be set forward, so that the process seems to run for a guard
	marks     bool // clients that saw a clock step take `steady` away
	replaces  int  // so many nodes may turn into servers that have run for long and were never used
	forgets   bool // SCRIPT FLUSH: the witness is gone, the process is not
	rollbacks bool // the data of an earlier time come back in the same process

	guardPerClient  bool // a client that has been connected for a guard trusts the node, without a marker
	staleRun        bool // the run id is not read again when the connection is made anew
	missingIsUnused bool // where all markers are missing, steady is written at once
	wallClock       bool // the marker says since when, by the server's clock
	healsEarly      bool // the guard is watched for a tick less
	sameNonce       bool // nonces repeat
	overwrites      bool // writes do not compare
	resends         bool // a write whose connection broke is sent again as it was
	noWitness       bool // every missing marker is one of an unused node
	someUnused      bool // first use needs this node unused, not all
	noUptime        bool // first use does not ask how long the process runs
	watchFromSend   bool // the guard is watched from the sending of the nonce
	oldLooks        bool // first use trusts what was once seen of each node, at whatever times
}

type markerState struct {
	nodes [3]markerNode // those that the model does not use stay zero
	lock  uint8         // what is left of the lock
}

type markerNode struct {
	markerMemory
	run     uint8 // of the present process
	witness bool  // the present process had a marker before
	uptime  uint8 // of the process, up to a guard
	ahead   bool  // the clock was set forward in this run: the uptime that INFO shows is too long
	old     bool  // replaced by a server that had run for long; not again
	saved   markerValue
	writes  [2]markerWrite
	views   [2]markerView
}

// markerMemory is what FLUSHALL takes.
type markerMemory struct {
	marker markerValue
	key    bool // the lock's key is here
}

// markerValue is the marker's string.
type markerValue struct{ kind, run, nonce uint8 }

const (
	markerMissing = 0
	markerWaits   = 1 // run id and nonce
	markerUnused  = 2 // run id and nonce, flagged new: this process never had a marker before
	markerSteady  = 3 // run id and `steady`
)

// markerWrite is a compare-and-set with its SCRIPT EXISTS and LOAD, on its way.
type markerWrite struct {
	way      uint8 // none, to the node, or back with a yes
	by       uint8 // the client
	from, to markerValue
	known    bool // the reply says that the witness was known
}

const (
	markerNoWrite = 0
	markerSent    = 1
	markerReply   = 2
)

// markerView is what a client knows of a node.
type markerView struct {
	run     uint8 // of the process at the other end of its connection; 0: not connected
	since   uint8 // connected for so long, up to a guard
	nonce   markerValue
	watched uint8 // nonce was seen so long ago, up to a guard
}

func (r markerRules) quorum() int { return r.nodes/2 + 1 }

// initial is a pool that nobody has used, of processes just started or old; and one that is in use.
func (r markerRules) initial() []markerState {
	var young, old, used markerState
	for i := range r.nodes {
		young.nodes[i].run = 1
		old.nodes[i].run, old.nodes[i].uptime = 1, r.guard
		used.nodes[i] = old.nodes[i]
		used.nodes[i].marker, used.nodes[i].witness = markerValue{markerSteady, 1, 0}, true
	}
	return []markerState{young, old, used}
}

// wrong looks at the one promise: a rival gets no quorum while the lock may be held.
func (r markerRules) wrong(s markerState) string {
	votes := 0
	for i := range r.nodes {
		if r.votes(s.nodes[i]) && !s.nodes[i].key {
			votes++
		}
	}
	if s.lock > 0 && votes >= r.quorum() {
		return "a rival gets the votes of a quorum that forgot the lock"
	}
	return ""
}

// votes tells whether some client would get the vote of this node.
func (r markerRules) votes(n markerNode) bool {
	for _, v := range n.views[:r.clients] {
		expected := markerValue{markerSteady, v.run, 0}
		if v.run != 0 && (n.marker == expected || r.guardPerClient && v.since >= r.guard) {
			return true
		}
	}
	return false
}

// next calls emit for all that can happen in s.
func (r markerRules) next(s markerState, emit func(string, markerState)) {
	emit("a tick", r.tick(s))
	r.takeLock(s, emit)
	for i := range r.nodes {
		r.fault(s, i, emit)
		for w := range r.writes {
			r.deliver(s, i, w, emit)
		}
		for c := range r.clients {
			r.tend(s, i, c, emit)
		}
	}
	for c := range r.clients {
		r.firstUse(s, c, emit)
	}
}

func (r markerRules) tick(s markerState) markerState {
	s.lock = less(s.lock)
	for i := range r.nodes {
		n := &s.nodes[i]
		n.uptime = min(n.uptime+1, r.guard)
		n.ahead = n.ahead && n.uptime < r.guard // true by now
		n.key = n.key && s.lock > 0
		for c := range r.clients {
			v := &n.views[c]
			if v.run != 0 && r.guardPerClient {
				v.since = min(v.since+1, r.guard)
			}
			if v.nonce != (markerValue{}) {
				v.watched = min(v.watched+1, r.guard)
			}
		}
	}
	return s
}

// takeLock takes the lock, or renews it, on every set of nodes that is a quorum. Where it is not renewed its key is
// taken for gone, which it will be before the lock.
func (r markerRules) takeLock(s markerState, emit func(string, markerState)) {
	for set := range 1 << r.nodes {
		to, count, possible := s, 0, true
		for i := range r.nodes {
			n := &to.nodes[i]
			in := set>>i&1 == 1
			if in {
				count++
				possible = possible && r.votes(*n) && (s.lock == 0 || n.key)
			}
			n.key = in
		}
		if to.lock = r.guard; possible && count >= r.quorum() && to != s {
			emit(fmt.Sprintf("the lock is taken or renewed on the nodes %03b", set), to)
		}
	}
}

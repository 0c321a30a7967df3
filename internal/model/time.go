package main

import "fmt"

// The lock in time: two clients want one resource. Time is a row of ticks, and everything but a tick happens between
// two of them, in any order and any number, so that a message late by any time and a client frozen for any time are
// both just ticks that come first. All times are kept as what is left of them, or as an age that stops at the TTL; so
// the states are finite while runs are endless.
//
// Two things are left out on purpose, since they only ever add refusals. A token ends with its handle: its keys and
// requests vanish then. (Keys of a dead token deny, and a denied request is like one that was lost. That they also go
// away is promised by the model of the undo.) And no reply needs a step to get lost: it may stay uncounted.

// timedRules are the numbers of a model, and the rules of the protocol that it breaks; none in the zero value.
type timedRules struct {
	nodes    int
	ttl      uint8
	timeout  uint8 // a vote later than this does not decide a round
	latest   uint8 // oldest age at which a node still creates a key for a request
	guard    uint8 // how long a node that forgot has no vote
	drift    uint8 // a node's key may end this much early; every validity is shorter by as much
	restarts int   // how often nodes restart empty, in all; endless: as often as they like
	unseen   bool  // a key may vanish unseen, once in a TTL

	noElapsedCheck   bool // a quorum counts however long it took
	noNodeTimeout    bool // a late vote decides a round, if there is validity left
	fromReply        bool // validity is counted from the reply
	lateCount        bool // a handle that passed its deadline goes on, and renewals counted then move the deadline
	refillVotes      bool // a refilled key is a vote
	unsteadyRenews   bool // a node in its guard votes in renewals
	unsteadyAcquires bool // a node in its guard votes in acquires
	unsteadyWrites   bool // a node in its guard writes the key of an acquire, without a vote
	fewerRenew       bool // the deadline follows one node less than a majority
	ignoresDrift     bool // validity is not shortened by the drift
	trustsBareQuorum bool // a lock without margin is believed to survive a loss
	trustsOldMargin  bool // a lock that had the margin at the loss is believed to survive it, however it goes on
}

const endless = -1

// timedState is one moment.
type timedState struct {
	nodes   [5]timedNode // those that the model does not use stay zero
	clients [2]timedClient
	unseen  uint8 // time left in which nothing more may vanish unseen
	restart uint8 // restarts so far, if they are counted
}

type timedNode struct {
	owner    uint8 // 1 and 2: the client whose key is here; 0: none
	left     uint8 // until the key ends
	unsteady uint8 // what is left of the guard
	by       [2]timedAsk
}

// timedAsk is what a client has going on with a node.
type timedAsk struct {
	ask  uint8 // of the client's present round: none, asked, or yes
	good uint8 // what is left of a TTL from the start of the latest round that this node confirmed
}

const (
	timedNone  = 0
	timedAsked = 1 // sent, not yet applied
	timedYes   = 2 // applied and confirmed, not yet counted
)

type timedClient struct {
	phase    uint8
	renewing bool  // the present round is a renewal
	age      uint8 // of the present round
	left     uint8 // until the deadline; a handle is valid while there is some
	lapsed   bool  // another owned the resource after this handle did
}

const (
	timedIdle    = 0
	timedTrying  = 1
	timedHolding = 2
)

func (r timedRules) quorum() int { return r.nodes/2 + 1 }

func (r timedRules) initial() []timedState { return []timedState{{}} }

// wrong looks at the two promises: one owner at a time, and ownership without a hole in which another had it.
func (r timedRules) wrong(s timedState) string {
	a, b := s.clients[0], s.clients[1]
	if a.valid() && b.valid() && r.survives(s) {
		return "two clients are both valid"
	}
	if a.valid() && a.lapsed || b.valid() && b.lapsed {
		return "a handle is valid again although another owned the resource in between"
	}
	return ""
}

// survives tells whether a lock is promised to survive the key that vanished in the last TTL, if one did: both locks
// are then valid by votes that count, and one of them has the margin.
func (r timedRules) survives(s timedState) bool {
	margin := max(r.confirmed(s, 0), r.confirmed(s, 1)) + r.quorum() - r.nodes - 1
	return s.unseen == 0 || margin > 0 || r.trustsBareQuorum || r.trustsOldMargin
}

// confirmed counts the nodes on which c knows that it holds the key, by the clock: a confirmation lasts for a TTL.
func (r timedRules) confirmed(s timedState, c int) int {
	count := 0
	for i := range r.nodes {
		if s.nodes[i].by[c].good > 0 {
			count++
		}
	}
	return count
}

func (c timedClient) valid() bool { return c.phase == timedHolding && c.left > 0 }

// next calls step for all that can happen in s.
func (r timedRules) next(s timedState, step func(string, timedState)) {
	emit := func(what string, to timedState) { step(what, r.settle(to)) }
	emit("a tick", r.tick(s))
	for i := range r.nodes {
		r.fault(s, i, emit)
	}
	for c := range s.clients {
		r.client(s, c, emit)
		for i := range r.nodes {
			r.apply(s, c, i, emit)
			r.count(s, c, i, emit)
		}
	}
}

// lease is what a request is worth when it leaves.
func (r timedRules) lease() uint8 {
	if r.ignoresDrift {
		return r.ttl
	}
	return r.ttl - r.drift
}

// tick lets one unit of time pass everywhere.
func (r timedRules) tick(s timedState) timedState {
	for i := range s.nodes {
		n := &s.nodes[i]
		n.left, n.unsteady = less(n.left), less(n.unsteady)
		if n.left == 0 {
			n.owner = 0
		}
		for c := range n.by {
			n.by[c].good = less(n.by[c].good)
		}
	}
	s.unseen = less(s.unseen)
	for c := range s.clients {
		who := &s.clients[c]
		who.left = less(who.left)
		if who.phase != timedIdle {
			who.age = min(who.age+1, r.ttl)
		}
		lost := who.phase == timedHolding && who.left == 0 && !r.lateCount
		late := who.phase == timedTrying && who.age > r.timeout && !r.noElapsedCheck && !r.noNodeTimeout
		if lost || late {
			s = r.end(s, c)
		}
	}
	return s
}

func less(t uint8) uint8 { return minus(t, 1) }

// minus is what is left of t after by more ticks.
func minus(t, by uint8) uint8 { return t - min(t, by) }

// fault is what can happen to node i by itself.
func (r timedRules) fault(s timedState, i int, emit func(string, timedState)) {
	n := s.nodes[i]
	if s.restart != uint8(max(r.restarts, 0)) || r.restarts == endless {
		to := s
		if r.restarts != endless {
			to.restart++
		}
		to.nodes[i].owner, to.nodes[i].left, to.nodes[i].unsteady = 0, 0, r.guard
		emit(fmt.Sprintf("node %d restarts empty", i+1), to)
	}
	if n.owner != 0 && n.left <= r.drift {
		to := s
		to.nodes[i].owner, to.nodes[i].left = 0, 0
		emit(fmt.Sprintf("node %d's clock runs ahead: the key ends", i+1), to)
	}
	if r.unseen && s.unseen == 0 && n.owner != 0 && (!r.trustsOldMargin || r.confirmed(s, int(n.owner)-1) == r.nodes) {
		to := s
		to.nodes[i].owner, to.nodes[i].left = 0, 0
		to.unseen = r.ttl
		emit(fmt.Sprintf("the key on node %d vanishes unseen", i+1), to)
	}
}

// client is what client c can decide by itself: to try, to start a renewal, to give up or unlock.
func (r timedRules) client(s timedState, c int, emit func(string, timedState)) {
	name := string(rune('A' + c))
	who := s.clients[c]
	if who.phase != timedIdle {
		emit(name+" ends: gives up or unlocks", r.end(s, c))
	}
	if who.phase == timedTrying {
		return
	}
	to, what := s, name+" tries"
	if who.phase == timedHolding {
		what = name + " renews"
	}
	asks := &to.clients[c]
	asks.phase, asks.renewing, asks.age = max(who.phase, timedTrying), who.phase == timedHolding, 0
	for i := range r.nodes {
		to.nodes[i].by[c].ask = timedAsked
	}
	emit(what, to)
}

// end forgets all about the token of c.
func (r timedRules) end(s timedState, c int) timedState {
	s.clients[c] = timedClient{}
	for i := range s.nodes {
		n := &s.nodes[i]
		n.by[c] = timedAsk{}
		if n.owner == uint8(c+1) {
			n.owner, n.left = 0, 0
		}
	}
	return s
}

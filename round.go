package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// round is one question asked of all nodes at once.
type round struct {
	call
	q        *quorum
	h        *hold
	requests []request
	need     int
	since    instant // from when the nodes that grant count the keys' life, at the earliest
	raising  bool    // part of an acquire: a renewal that counts who carries the fence

	leader int           // the node that is asked before the others
	led    chan struct{} // closed when it has answered; nil where all are asked at once

	// Guarded by h.mu.
	votes   []ballot
	granted int
	denied  int
	none    int // no answer
	open    int // requests that have not reported yet
	verdict verdict
	late    time.Duration // renew: how much later than planned it began

	done    chan struct{} // closed at the verdict; nil where nobody waits
	settled func(*round)  // called after the verdict, without h.mu; nil where somebody waits
}

// ballot is what one node said in one round.
type ballot struct {
	vote
	cast bool
}

type verdict uint8

const (
	undecided verdict = iota
	won               // enough grants, in time
	refused           // the denials alone put the quorum out of reach
	unknown           // too few answers, or too late
)

// newRound is a round that begins now, or at start where a hold began with it.
func (q *quorum) newRound(o op, h *hold, start instant, ttl time.Duration, need int) *round {
	return &round{
		call: call{op: o, keys: h.keys, token: h.token, ttl: ttl, start: start, timeout: h.nodeTimeout,
			millis: millis(ttl), stripes: h.stripes, fence: h.fenceText, proposed: h.fence},
		q: q, h: h, need: need, since: start,
		votes: make([]ballot, len(q.nodes)),
	}
}

// ask sends the round to the nodes for which to is true, all of them if it is nil. Those left out must have been counted
// before.
func (r *round) ask(to func(node int) bool) {
	r.enqueue(to)
	r.q.nudge()
	if r.raising && len(r.requests) == 0 {
		r.expire() // nobody can be raised
	}
}

// enqueue is ask without waking the nodes, so that many rounds can leave together.
func (r *round) enqueue(to func(node int) bool) {
	r.requests = make([]request, 0, len(r.q.nodes))
	for i := range r.q.nodes {
		if to == nil || to(i) {
			r.requests = append(r.requests, request{call: &r.call, asker: r, node: i})
		}
	}
	r.open = len(r.requests)
	for i := range r.requests {
		r.q.nodes[r.requests[i].node].submit(&r.requests[i])
	}
}

// askFirst asks one node alone. Of many who want what has just become free one gets its grant, and only that one goes
// on to ask the others: asked all at once, each node might grant another one, and nobody would have a quorum.
func (r *round) askFirst(leader int) {
	r.leader, r.led = leader, make(chan struct{})
	r.ask(func(i int) bool { return i == leader })
}

// follow asks the other nodes once the first has granted, or has taken twice its usual time. Where it denies, the round
// is over. Its error is that of await.
func (r *round) follow(ctx context.Context, closed <-chan struct{}) error {
	if r.led == nil {
		return nil
	}
	usual := time.Duration(r.q.nodes[r.leader].roundTrip.Load())
	timer := time.NewTimer(min(max(leadFloor, 2*usual), r.timeout/4))
	defer timer.Stop()
	select {
	case <-r.led:
	case <-timer.C:
	case <-ctx.Done():
		r.expire()
		return ctx.Err()
	case <-closed:
		r.expire()
		return ErrClosed
	}
	r.h.mu.Lock()
	if b := r.votes[r.leader]; b.cast && b.kind == voteDenied && r.decide(unknown) {
		r.h.mu.Unlock()
		r.announce()
		return nil
	}
	for i := range r.q.nodes {
		if i != r.leader {
			r.requests = append(r.requests, request{call: &r.call, asker: r, node: i}) // enqueue has made room for all
		}
	}
	others := r.requests[1:]
	r.open += len(others)
	r.h.mu.Unlock()
	for i := range others {
		r.q.nodes[others[i].node].submit(&others[i])
	}
	r.q.nudge()
	return nil
}

// leadFloor is the least that the first node has to answer before the others are asked all the same.
const leadFloor = 2 * time.Millisecond

// sending drops what nobody wants any more. A request that leaves may create the key, so a node that gets one is
// released later; both are decided under one lock, so that no request slips out behind the release.
func (r *round) sending(req *request) bool {
	if !r.op.mayCreate() {
		return true
	}
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if r.h.phase == dead {
		return false
	}
	if !req.sent {
		req.sent = true
		r.h.sent(req.node)
	}
	return true
}

// answered counts a vote. One that comes after the node timeout cannot decide the round, but a late grant still counts
// for the margin and, by its round's start, for the deadline.
func (r *round) answered(req *request, v vote) {
	h := r.h
	if v.fence > 0 {
		if r.q.fences.tooFar(v.fence, r.q.clock.mono()) {
			v = noAnswer(reasonTooFar)
		}
		r.q.fences.saw(v.fence)
	}
	h.mu.Lock()
	if r.op.mayCreate() {
		if req.sent {
			h.nodes[req.node].open--
		}
		h.apply(req.node, v, r.since, req.resent || req.sent && v.kind == voteNone)
		if r.op == opRenew && h.phase == held {
			h.advance(r.q.majority, r.q.clock.now)
		}
	}
	decided := r.count(req.node, v)
	complete := r.op.mayCreate() && r.open == 0 && (r.led == nil || len(r.requests) > 1)
	h.heard = h.heard || complete
	first := r.led != nil && req.node == r.leader
	h.mu.Unlock()
	if v.kind == voteRefill {
		r.q.counts.refilled.Add(1)
	}
	if first {
		close(r.led)
	}
	if v.count != 0 {
		r.q.told(req.node, h.keys, v.count)
	}
	if decided {
		r.announce()
	}
	if complete {
		r.q.review(h)
	}
}

// count takes a vote into the tally and reports whether it decided the round. h.mu must be held.
func (r *round) count(node int, v vote) bool {
	r.open--
	if r.verdict != undecided {
		return false
	}
	r.votes[node] = ballot{v, true}
	if r.age() > r.timeout {
		r.votes[node] = ballot{noAnswer(reasonTimeout(r.timeout)), true}
		return r.decide(r.outcome())
	}
	switch {
	case v.kind == voteGrant && r.raising && !r.h.mayCarry(node):
		r.votes[node] = ballot{noAnswer(reasonMore), true}
		r.none++
	case v.kind == voteGrant:
		r.granted++
	case v.kind == voteDenied, v.kind == voteRefill:
		r.denied++
	default:
		r.none++
	}
	n := len(r.q.nodes)
	pending := n - r.granted - r.denied - r.none
	switch {
	case r.granted >= r.need:
		return r.decide(won)
	case n-r.denied < r.need:
		return r.decide(refused)
	case n-r.denied-r.none < r.need && n-r.denied-pending >= r.need:
		// Out of reach, and those who have not answered cannot turn "nobody knows" into "held" any more.
		return r.decide(unknown)
	}
	return false
}

// outcome is the verdict of a round that was not won. Not ours is only what the denials alone prove.
func (r *round) outcome() verdict {
	if len(r.q.nodes)-r.denied < r.need {
		return refused
	}
	return unknown
}

// age is the time since the round began.
func (r *round) age() time.Duration { return r.q.clock.mono() - r.start.mono }

func (r *round) decide(v verdict) bool {
	if r.verdict != undecided {
		return false
	}
	r.verdict = v
	return true
}

func (r *round) announce() {
	if r.done != nil {
		close(r.done)
	}
	if r.settled != nil {
		r.settled(r)
	}
}

// expire ends a round whose time is up.
func (r *round) expire() {
	r.h.mu.Lock()
	decided := r.decide(r.outcome())
	r.h.mu.Unlock()
	if decided {
		r.announce()
	}
}

// await returns once the round is decided, its node timeout has passed, ctx has ended or the pool is closing. Its error
// is ctx's or ErrClosed, nil otherwise. It never waits for I/O.
func (r *round) await(ctx context.Context, closed <-chan struct{}) error {
	timer, _ := r.q.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(forever)
	}
	timer.Reset(r.timeout - r.age())
	defer r.q.timers.Put(timer)
	defer timer.Stop()
	select {
	case <-r.done:
		return nil
	case <-timer.C:
		r.expire()
		return nil
	case <-ctx.Done():
		r.expire()
		return ctx.Err()
	case <-closed:
		r.expire()
		return ErrClosed
	}
}

// failure tells why the round was not won, node by node. h.mu must be held.
func (r *round) failure() *QuorumError {
	o := r.op
	if r.raising {
		o = opAcquire
	}
	e := &QuorumError{Op: o.String(), Resources: r.h.resources, Need: r.need, Granted: r.granted, verdict: ErrNoQuorum}
	if r.verdict == refused {
		e.verdict = ErrHeld
	}
	pending := error(reasonPending)
	if r.age() >= r.timeout {
		pending = reasonTimeout(r.timeout)
	}
	asked := make([]bool, len(r.votes))
	for i := range r.requests {
		asked[r.requests[i].node] = true
	}
	for i, b := range r.votes {
		why := b.reason
		switch {
		case b.kind == voteGrant && b.cast, !asked[i] && !b.cast:
			continue
		case !b.cast:
			why = cmp.Or(r.q.keeper.voteless(i), pending)
		case b.kind == voteDenied:
			why = r.deniedBecause(b.vote)
		case why == nil:
			why = reasonMiscount
		}
		e.Nodes = append(e.Nodes, &NodeError{Node: r.q.nodes[i].name, Err: why})
	}
	if r.verdict == refused && o == opAcquire {
		e.expiry = r.nextExpiry()
	}
	return e
}

// nextExpiry is when enough of the keys in the way will have run out for the quorum to be within reach; 0 if unknown.
func (r *round) nextExpiry() time.Duration {
	var left []time.Duration
	for _, b := range r.votes {
		if b.cast && b.kind == voteDenied && b.remaining >= 0 {
			left = append(left, b.remaining)
		}
	}
	slices.Sort(left)
	missing := r.need - (len(r.votes) - r.denied)
	if missing < 1 || missing > len(left) {
		return 0
	}
	return left[missing-1] + time.Millisecond // the nodes count whole milliseconds, rounded down
}

func (r *round) deniedBecause(v vote) error {
	if v.key < 0 {
		return reason("is not ours there any more")
	}
	return reasonDenied(r.h.resources[v.key], v.remaining)
}

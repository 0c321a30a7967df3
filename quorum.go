package redlock

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Quorum says how many of N nodes must grant an acquire. Renewals need a majority, whatever the acquire needed.
type Quorum int

const (
	// Majority, the default, is more than half: 3 of 5, 3 of 4.
	Majority Quorum = 0
	// All needs every node: a lock that any N - majority nodes may forget, and that any one node can refuse.
	All Quorum = -1

	invalidQuorum Quorum = -2
)

// AtLeast needs k nodes; fewer than a majority or more than there are nodes is refused by New and Open.
func AtLeast(k int) Quorum {
	if k <= 0 {
		return invalidQuorum
	}
	return Quorum(k)
}

func majorityOf(n int) int { return n/2 + 1 }

// of is the number of grants out of n nodes.
func (q Quorum) of(n int) (int, error) {
	k := int(q)
	switch q {
	case Majority:
		k = majorityOf(n)
	case All:
		k = n
	}
	if k < majorityOf(n) {
		return 0, usageError("WithQuorum: below a majority two callers could hold one lock; of %d nodes at least %d must grant", n, majorityOf(n))
	}
	if k > n {
		return 0, usageError("WithQuorum: AtLeast(%d) can never be reached with %d nodes; use at most %d", k, n, n)
	}
	return k, nil
}

// quorum asks all nodes at once and decides by their votes.
type quorum struct {
	nodes    []*node // set by New, then read-only, like the fields below
	need     int     // grants an acquire needs, K
	majority int
	clock    clock
	events   *events
	closed   chan struct{} // closed when the pool begins to close
	counts   counters
	fences   proposer
	keeper   *keeper
	tickets  atomic.Uint64 // the last that was drawn: no two calls of a pool come at the same time
	timers   sync.Pool     // of stopped timers, for rounds last far shorter than their timers

	freed func(*hold)                              // a lock has ended, its releases are queued, and what is queued now leaves with them
	told  func(node int, keys []string, count int) // so many subscribers were told of a release; -1: PUBLISH was refused
}

// counters are what Stats shows of locks.
type counters struct {
	acquired, denied, noQuorum, renewed, renewalsFailed, lost, released atomic.Uint64
	refilled, raised                                                    atomic.Uint64
	waiting                                                             atomic.Int64
	maxLateness                                                         atomic.Int64
}

// nudge wakes the nodes that have something to send.
func (q *quorum) nudge() {
	for _, n := range q.nodes {
		n.nudge()
	}
}

// acquire runs one acquire round. On an error everything that any node may have granted is being undone.
func (q *quorum) acquire(ctx context.Context, w *wish) (*hold, error) {
	r, err := q.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	r.ask(nil)
	h, _, err := q.settle(ctx, r)
	return h, err
}

// begin makes an acquire round, with a token of its own. The nodes are to be asked next.
func (q *quorum) begin(ctx context.Context, w *wish) (*round, error) {
	start := q.clock.now()
	if !q.keeper.ready.Load() {
		q.connect(ctx, w.nodeTimeout)
	}
	if bar := q.keeper.barredFor(); bar > 0 {
		return nil, &QuorumError{Op: opAcquire.String(), Resources: w.resources, Need: q.need, verdict: ErrNoQuorum,
			note: "our own clock was wrong: no new lock for another " + round10ms(bar).String()}
	}
	return q.newAcquire(start, w), nil
}

// mayBegin says whether begin would neither block nor fail.
func (q *quorum) mayBegin() bool { return q.keeper.ready.Load() && q.keeper.barredFor() <= 0 }

func (q *quorum) newAcquire(start instant, w *wish) *round {
	h := newHold(w.terms, w.resources, w.keys, newToken(w.label), len(q.nodes), start)
	h.setFence(q.fences.next(start.mono))
	r := q.newRound(opAcquire, h, start, w.ttl, q.need)
	r.done = make(chan struct{})
	return r
}

// settle waits for an acquire round that has been asked, and decides. The round it returns is the one that decided.
func (q *quorum) settle(ctx context.Context, r *round) (*hold, *round, error) {
	h, start := r.h, r.start

	// 1. Where one node was asked first, ask the others unless it denies.
	why := r.follow(ctx, q.closed)
	if why == nil {
		why = r.await(ctx, q.closed)
	}

	// 2. Settle the fence, where the nodes answered different ones.
	if raise := q.raise(h, r); raise != nil {
		r = raise
		why = r.await(ctx, q.closed)
	}

	// 3. Count: enough grants, and time left after the last of them.
	h.mu.Lock()
	now := q.clock.now()
	left := h.left(now)
	if r.verdict == won && left > 0 && why != ErrClosed {
		h.phase, h.owned = held, true
		h.mu.Unlock()
		return h, r, nil
	}
	err := r.failure()
	if r.verdict == won && why == nil {
		err.note = "the round took " + elapsed(start, now).String() + ", which leaves nothing of the time the lock may be held"
	}
	if why == ErrClosed {
		h.end(why)
	} else {
		err.ctxErr = why
		h.end(err)
	}
	h.mu.Unlock()

	// 4. Give back what we cannot keep.
	q.giveBack(h, nil)
	if why == ErrClosed {
		return nil, r, ErrClosed
	}
	return nil, r, err
}

// connect has the nodes connect for the first acquire, and waits until enough of them can vote or no more will soon; for a
// node timeout at most, which is the acquire's.
func (q *quorum) connect(ctx context.Context, patience time.Duration) {
	if q.keeper.begun.CompareAndSwap(false, true) {
		q.nudge()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-q.keeper.settled:
	case <-timer.C:
		q.keeper.letGo()
	case <-ctx.Done():
	case <-q.closed:
	}
}

// raise starts the second half of an acquire whose grants answered different fences: the lowest that K of them can carry
// becomes the lock's, and those that answered less are raised to it. It is part of the acquire and shares its node
// timeout. It returns nil where there is nothing to raise.
func (q *quorum) raise(h *hold, acquire *round) *round {
	h.mu.Lock()
	if acquire.verdict != won {
		h.mu.Unlock()
		return nil
	}
	h.setFence(h.lowestFence(q.need))
	if h.carriers() >= q.need {
		h.mu.Unlock()
		return nil
	}
	r := q.newRound(opRenew, h, acquire.start, h.ttl, q.need)
	r.raising, r.done = true, make(chan struct{})
	to := make([]bool, len(h.nodes))
	for i, s := range h.nodes {
		switch {
		case s.has && s.answer == h.fence:
			r.votes[i] = ballot{vote{kind: voteGrant}, true}
			r.granted++
		case s.has && h.mayCarry(i), s.open > 0:
			to[i] = true // behind its acquire, where that has not been answered
		case s.has:
			r.votes[i] = ballot{noAnswer(reasonMore), true}
			r.none++
		case acquire.votes[i].kind == voteDenied:
			r.votes[i] = acquire.votes[i]
			r.denied++
		default:
			r.votes[i] = ballot{noAnswer(cmp.Or(acquire.votes[i].reason, error(reasonPending))), true}
			r.none++
		}
	}
	h.mu.Unlock()
	q.counts.raised.Add(1)
	r.ask(func(i int) bool { return to[i] })
	return r
}

// renew starts a renewal of h on every node. Exactly one of done and settled tells of its verdict.
func (q *quorum) renew(h *hold, settled func(*round)) *round {
	r := q.newRound(opRenew, h, q.clock.now(), h.ttl, q.majority)
	if r.settled = settled; settled == nil {
		r.done = make(chan struct{})
	}
	return r
}

// topUp gives a fixed lease, for what is left of it, to the nodes that do not hold it.
func (q *quorum) topUp(h *hold) {
	start := q.clock.now()
	h.mu.Lock()
	began := h.began
	left := h.ttl - elapsed(began, start)
	free := make([]bool, len(h.nodes))
	for i, s := range h.nodes {
		free[i] = !s.has
	}
	h.mu.Unlock()
	if left <= 0 {
		return
	}
	r := q.newRound(opAcquire, h, start, left, q.need)
	r.since = began // those keys end with the lease, not a TTL after now
	r.ask(func(i int) bool { return free[i] })
}

// conclude draws the consequences of a renewal's verdict; it reports whether the hold is still alive.
func (q *quorum) conclude(r *round) (alive bool, err error) {
	h := r.h
	alive = q.alive(h) // a round that was won after the deadline has won nothing
	h.mu.Lock()
	switch {
	case !alive || h.phase != held:
		err = h.err
		h.mu.Unlock()
		return false, err
	case r.verdict == won:
		h.failure = nil
		ev := q.describe(h)
		h.mu.Unlock()
		q.counts.renewed.Add(1)
		ev.Lateness, ev.Need = r.late, r.need
		q.events.emit(evRenewed, ev)
		return true, nil
	}
	failure := r.failure()
	h.failure = failure
	ev := q.describe(h)
	h.mu.Unlock()
	q.counts.renewalsFailed.Add(1)
	ev.Granted, ev.Need, ev.Lateness, ev.Err = r.granted, r.need, r.late, failure
	q.events.emit(evRenewalFailed, ev)
	if r.verdict == refused {
		q.lose(h, &lossError{resources: h.resources, cause: failure})
		return false, failure
	}
	return true, failure
}

// lose ends a held lock because ownership can no longer be proved.
func (q *quorum) lose(h *hold, err error) {
	h.mu.Lock()
	ended := h.end(err)
	ev := q.describe(h)
	h.mu.Unlock()
	if !ended {
		return
	}
	h.ended(err)
	q.giveBack(h, nil)
	q.counts.lost.Add(1)
	ev.Err = err
	q.events.emit(evLost, ev)
}

// alive says whether h proves ownership now, by the clock; it ends a hold whose time is up.
func (q *quorum) alive(h *hold) bool {
	h.mu.Lock()
	now := q.clock.now()
	if h.phase != held || h.left(now) > 0 {
		defer h.mu.Unlock()
		return h.phase == held
	}
	err := h.expiry(now)
	h.mu.Unlock()
	q.lose(h, err)
	return false
}

// giveBack releases a dead hold on every node that may hold its keys. A node counts as free if it was never asked, has
// denied, or confirms the release; done is closed once K nodes are free or cannot be.
func (q *quorum) giveBack(h *hold, done chan struct{}) *round {
	h.mu.Lock()
	r := q.newRound(opRelease, h, instant{mono: q.clock.mono()}, h.ttl, q.need)
	r.done = done
	to := make([]bool, len(h.nodes))
	targets := 0
	for i, s := range h.nodes {
		if to[i] = s.asked; s.asked {
			targets++
		}
	}
	r.granted = len(h.nodes) - targets
	owned := h.owned
	h.owned = false // whoever waits is told once
	decided := r.granted >= r.need && r.decide(won)
	h.mu.Unlock()
	if decided {
		r.announce()
	}
	r.enqueue(func(i int) bool { return to[i] })
	if owned {
		if h.ticket != nil {
			q.leave(h.ticket)
		}
		q.freed(h)
	}
	q.nudge()
	return r
}

// awaitRelease waits for a release for a node timeout at most, and returns why too few nodes are free of the token, nil
// if enough are or were before.
func (q *quorum) awaitRelease(r *round) error {
	_ = r.await(context.Background(), nil)
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	if r.h.released = r.h.released || r.verdict == won; !r.h.released {
		return r.failure()
	}
	return nil
}

// finishRelease is awaitRelease for the first release of a lock, which is told to the observer.
func (q *quorum) finishRelease(r *round, ev Event) error {
	err := q.awaitRelease(r)
	q.counts.released.Add(1)
	ev.Granted, ev.Err = r.granted, err
	q.events.emit(evReleased, ev)
	return err
}

// review says when a held lock is on fewer nodes than before, and when it is on all of them again.
func (q *quorum) review(h *hold) {
	if q.events == nil {
		return
	}
	h.mu.Lock()
	missing := len(h.nodes) - h.holding(q.clock.now(), q.keeper.isSteady)
	before := h.missing
	told := h.phase == held && h.heard
	if told {
		h.missing = missing
	}
	ev := q.describe(h)
	h.mu.Unlock()
	switch {
	case !told:
	case missing > before:
		q.events.emit(evDegraded, ev)
	case missing == 0 && before > 0:
		q.events.emit(evRestored, ev)
	}
}

// describe fills in an event about a hold. h.mu must be held.
func (q *quorum) describe(h *hold) Event {
	if q.events == nil {
		return Event{}
	}
	now := q.clock.now()
	g := h.holding(now, q.keeper.isSteady)
	return Event{Resources: h.resources, Label: h.label, Hold: elapsed(h.began, now), Granted: g, Need: q.need,
		Nodes: len(q.nodes), Margin: margin(g, q.need, len(q.nodes)), Validity: max(0, h.left(now))}
}

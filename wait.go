package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// waiter is one call that waits. It stands in the lines of its resources, and once it is first in all of them it asks
// the nodes:
//
//   - at first, and whenever the caller before it has left without the lock;
//   - right behind the releases of a lock of this process (lines.freed);
//   - when the nodes that were free at its last try, and those that have told of a release since, are a quorum;
//   - when enough of the holder's keys have run out;
//   - after a pause with full jitter, which grows from round to round, where too few nodes answered, or where we hear
//     of releases on too few.
//
// Progress: a round takes all of its resources on a node or none, and gives back what it got unless it won; and a call for
// several resources keeps nobody from one of them while it waits for another (headLocked). So nobody keeps anything while
// waiting for something else. Of rivals that split the votes one wins the node that all of them ask first the next time.
type waiter struct {
	wish   // set by the call, then read-only, like the fields of this group
	lines  *lines
	retry  retry
	ticket *ticket     // in the nodes' queues, for WithFair
	denied func(error) // told of every round that failed
	wake   chan struct{}

	limit  time.Duration // the next pause is drawn from 0 to this; of the calling goroutine alone, like the next two
	last   *QuorumError  // of the last round that all nodes were asked in
	joinAt time.Duration // when the place is to be renewed

	// Guarded by lines.mu.
	at     []*line       // those it stands in
	ears   []ear         // by node
	asking bool          // a round is under way
	round  *round        // asked on our behalf by whoever freed the resources
	rest   time.Duration // others go first until then
	leader int           // who is to be asked first, -1: nobody
	leadBy time.Duration // until when that node is waited for although enough others are free; 0: it is not
	behind bool          // others are before it in the nodes' queues: it has to hear when that changes
	rejoin bool          // something may have changed before it could hear of it
	astray bool          // too few nodes have placed it in their queues
}

// wait waits until the call has its lock, ctx ends or the pool is closed. If ctx ends in the middle of a round, the
// error is that of the round before: it knows more.
func (ls *lines) wait(ctx context.Context, w *waiter) (*hold, error) {
	w.lines, w.wake, w.leader = ls, make(chan struct{}, 1), -1
	w.ears = make([]ear, len(ls.q.nodes))
	for i := range w.ears {
		w.ears[i] = ear{free: true, blocked: -1, until: forever}
	}
	var h *hold
	err := ls.enter(w)
	if err == nil {
		h, err = w.contend(ctx)
	}
	if h != nil {
		h.ticket = w.ticket
	} else if w.ticket != nil && w.joinAt > 0 {
		ls.q.leave(w.ticket)
		ls.q.nudge()
	}
	ls.leave(w, h)
	return h, err
}

// contend asks the nodes, waits and asks again.
func (w *waiter) contend(ctx context.Context) (*hold, error) {
	q := w.lines.q
	timer := time.NewTimer(forever)
	defer timer.Stop()
	w.mayRest()
	due, why := time.Duration(0), atOnce
	for {
		r, leader, err := w.turn(ctx, timer, due, why)
		if err != nil {
			return nil, err
		}
		var h *hold
		if r == nil {
			r, err = q.begin(ctx, &w.wish)
			if err == nil && leader >= 0 {
				r.askFirst(leader)
			} else if err == nil {
				r.ask(nil)
			}
		}
		if err == nil {
			h, r, err = q.settle(ctx, r)
		}
		var failed *QuorumError
		if err == nil || !errors.As(err, &failed) {
			return h, err
		}
		led := r != nil && r.led != nil && failed.Granted == 0 && len(r.requests) == 1
		if (failed.ctxErr == nil || w.last == nil) && !led {
			w.denied(err)
			w.last = failed
		}
		if ctx.Err() != nil {
			return nil, w.gaveUp(ctx.Err())
		}
		w.lines.listen(w)
		due, why = w.learn(r, failed, led)
	}
}

// gaveUp is the error of a call that ends without having been in a round of its own: what is known of the resource.
func (w *waiter) gaveUp(ctxErr error) error {
	if w.last != nil {
		return w.last.withContext(ctxErr)
	}
	w.lines.mu.Lock()
	e := &QuorumError{Op: opAcquire.String(), Resources: w.resources, Need: w.lines.q.need, verdict: ErrNoQuorum,
		note: "it was not its turn on enough nodes yet"}
	for _, l := range w.at {
		switch {
		case l.busy != nil:
			e.verdict, e.note = ErrHeld, "another call of this process has "+quoteResource(l.busy.resources[0])
		case len(w.keys) == 1 && l.last != nil && w.ticket == nil:
			e = l.last
		}
	}
	for i, b := range w.ears {
		if w.ticket != nil && b.why != nil {
			e.Nodes = append(e.Nodes, &NodeError{Node: w.lines.q.nodes[i].name, Err: b.why})
		}
	}
	w.lines.mu.Unlock()
	e = e.withContext(ctxErr)
	w.denied(e)
	return e
}

// mayRest lets others go first, where this process has had the resource for a while.
func (w *waiter) mayRest() {
	now := w.lines.q.clock.mono()
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	for _, l := range w.at {
		if l.restLocked(now) {
			w.rest = now + streakPause/2 + rand.N(streakPause/2)
		}
	}
}

// endJitter keeps those who wait for one dead holder from asking at the same moment.
const endJitter = 5 * time.Millisecond

// dueBy is a reason for asking at a certain time.
type dueBy uint8

const (
	atOnce  dueBy = iota // nothing is known
	byPause              // too few nodes answered
	byDeaf               // too few tell us of releases; once they do, expiry is enough
	byEnd                // enough keys in the way will have run out, unless they are renewed
)

// turn waits until it is time to ask: by what was heard, or at due. It returns a round that was asked on our behalf, or
// nil and who is to be asked first, -1 for nobody.
func (w *waiter) turn(ctx context.Context, timer *time.Timer, due time.Duration, why dueBy) (*round, int, error) {
	q := w.lines.q
	for {
		w.stay()
		now := q.clock.mono()
		switch {
		case why == byDeaf && w.audible():
			due, why = w.expiry()+rand.N(endJitter), byEnd
		case why == byEnd && now >= due:
			if end := w.expiry(); end > now {
				due = end + rand.N(endJitter)
			}
		}
		w.lines.mu.Lock()
		if r := w.round; r != nil {
			w.round = nil
			w.lines.mu.Unlock()
			return r, -1, nil
		}
		if now >= due {
			if w.leadBy > 0 && now >= w.leadBy {
				w.leader, w.leadBy = -1, 0
			}
			for i := range w.ears {
				w.ears[i].free = true
			}
		}
		if w.readyLocked(now) {
			w.beginLocked()
			leader := w.leader
			w.lines.mu.Unlock()
			return nil, leader, nil
		}
		wait := forever
		if w.firstLocked() && !w.busyLocked() {
			if due > now {
				wait = due - now
			}
			for _, until := range []time.Duration{w.rest, w.leadBy} {
				if until > now {
					wait = min(wait, until-now)
				}
			}
		}
		w.lines.mu.Unlock()
		if w.ticket != nil && w.joinAt > 0 {
			wait = min(wait, max(0, w.joinAt-now))
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			if w.end() {
				return nil, -1, w.gaveUp(ctx.Err())
			}
		case <-q.closed:
			if w.end() {
				return nil, -1, ErrClosed
			}
		}
	}
}

// end makes sure that no round is begun for a call that gives up. It returns false where one has been: that has to be
// settled first.
func (w *waiter) end() bool {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.asking = true
	return w.round == nil
}

// learn draws the consequences of a round that failed, and says when to ask again at the latest.
func (w *waiter) learn(r *round, failed *QuorumError, led bool) (due time.Duration, why dueBy) {
	held := errors.Is(failed, ErrHeld) || led
	w.note(r, led)
	w.ask()
	now := w.lines.q.clock.mono()
	switch {
	case !held:
		return now + w.pause(failed), byPause
	case w.audible():
		return w.expiry() + rand.N(endJitter), byEnd
	}
	return now + w.pause(failed), byDeaf
}

// pause is how long to wait after a round that failed, where nobody tells us when to ask.
func (w *waiter) pause(failed *QuorumError) time.Duration {
	w.limit = min(max(min(w.limit, forever)*2, w.retry.min), w.retry.max, forever)
	d := rand.N(w.limit + 1)
	if failed.expiry > 0 {
		d = min(d, failed.expiry+rand.N(min(w.retry.min, failed.expiry/8+time.Millisecond)))
	}
	return d
}

// stay joins the nodes' queues, and joins them again before that is forgotten. Where too few nodes know of it, it gives up
// its places for a while.
func (w *waiter) stay() {
	if w.ticket == nil {
		return
	}
	w.lines.mu.Lock()
	first, again, behind, astray := w.firstLocked(), w.rejoin, w.behind, w.astray
	w.rejoin, w.behind, w.astray = false, false, false
	q := w.lines.q
	now, every := q.clock.mono(), min(lookEvery, w.ttl/4)
	again = !astray && (again || now >= w.joinAt)
	for i := range w.ears {
		e := &w.ears[i]
		e.first = e.first && !astray
		if again {
			e.asOf = 0 // what it will say is newer than all we know, whatever became of its clock
		}
	}
	w.lines.mu.Unlock()
	if !first && w.joinAt == 0 {
		return // its process has others in the queues
	}
	if behind {
		w.lines.listen(w)
	}
	switch {
	case astray:
		w.joinAt = now + every/2 + rand.N(every/2)
		q.leave(w.ticket)
		q.nudge()
	case again:
		w.joinAt = now + every
		q.join(w.ticket, &joining{w: w, open: len(q.nodes)})
		q.nudge()
	}
}

package redlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Lock is the handle of one acquisition. Its methods are safe for concurrent use. Once it is lost or unlocked it stays
// so: to lock again, call Lock again.
type Lock struct {
	q     *quorum // set by newLock, then read-only, like the three below
	dog   *watchdog
	h     *hold
	ctx   context.Context // the values of the Lock call's ctx
	watch watched         // the watchdog's

	mu     sync.Mutex // guards the fields below
	err    error      // nil while held
	live   context.Context
	cancel context.CancelCauseFunc // of live; nil until Context is called
	lost   chan struct{}           // nil until Lost is called
}

// newLock makes the handle of a hold and has the watchdog look after it.
func newLock(ctx context.Context, q *quorum, dog *watchdog, h *hold) *Lock {
	l := &Lock{q: q, dog: dog, h: h, ctx: ctx}
	h.ended = l.end
	dog.add(&l.watch, h)
	return l
}

// end is told once why the hold is dead.
func (l *Lock) end(err error) {
	l.dog.remove(&l.watch)
	l.mu.Lock()
	l.err = err
	cancel, lost := l.cancel, l.lost
	l.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
	if lost != nil && errors.Is(err, ErrLost) {
		close(lost)
	}
}

// Resources lists what the lock holds, sorted and without duplicates.
func (l *Lock) Resources() []string { return append([]string(nil), l.h.resources...) }

// Token is what the nodes store for this acquisition: 128 random bits and the label.
func (l *Lock) Token() string { return l.h.token }

// Fence is a number that rises with every new ownership of a resource, over all clients of the nodes; never 0. Pass it
// along with each write, and have the store that is written to refuse a write whose fence is below the highest that it
// has seen, in the same step: that, and nothing else, stops a process that was paused while it held the lock. A lock of
// several resources has one fence for all of them.
func (l *Lock) Fence() uint64 { return l.h.fence }

// Context carries the values of the Lock call's ctx but not its cancellation. It ends when the lock is lost or
// unlocked; context.Cause tells which, as Err does.
func (l *Lock) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		l.live, l.cancel = context.WithCancelCause(context.WithoutCancel(l.ctx))
		if l.err != nil {
			l.cancel(l.err)
		}
	}
	return l.live
}

// Lost is closed when ownership can no longer be proved, at the lock's deadline at the latest; never by Unlock.
func (l *Lock) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if errors.Is(l.err, ErrLost) {
			close(l.lost)
		}
	}
	return l.lost
}

// Err is nil while the lock is held. Afterwards it matches ErrUnlocked, or ErrLost and its reason: ErrNoQuorum (the
// deadline passed without a majority), ErrHeld (the nodes say it is not ours), ErrMaxHold, or none of them for the end
// of a fixed lease.
func (l *Lock) Err() error {
	if l.q.alive(l.h) {
		return nil
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.err
}

// Valid says whether the lock is held at this moment. It is computed from the clock, so it is right even if the process
// was frozen until just now; but a process can be frozen right after it, too: only the store that is written to can
// refuse a late writer.
func (l *Lock) Valid() bool { return l.q.alive(l.h) }

// ValidUntil is when the lock ends unless it is renewed before; a time not after now once it is lost or unlocked. It
// is computed at the call, so that a suspended machine does not stretch it.
func (l *Lock) ValidUntil() time.Time {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	at := time.Now()
	left := l.h.left(l.q.clock.now())
	if l.h.phase != held {
		left = min(left, 0)
	}
	return at.Add(min(left, forever))
}

// Margin is how many nodes may still forget the lock, unseen, before a rival could get it: 0 on a bare quorum, 2 of 5
// when all five hold it. 0 once it is lost or unlocked.
func (l *Lock) Margin() int {
	if !l.Valid() {
		return 0
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	q := l.q
	return margin(l.h.holding(q.clock.now(), q.keeper.isSteady), q.need, len(q.nodes))
}

// Extend moves the deadline to a full TTL (or lease) from now, but not past WithMaxHold. It blocks for one round, a node
// timeout at most, or until ctx ends. If it fails the deadline is no earlier than before: a *QuorumError while the lock is still
// held, ErrLost or ErrUnlocked once it is not.
func (l *Lock) Extend(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := l.Err(); err != nil {
		return err
	}
	q := l.q
	r := q.renew(l.h, nil)
	r.ask(nil)
	why := r.await(ctx, q.closed)
	alive, err := q.conclude(r)
	if !alive {
		return l.Err()
	}
	var failed *QuorumError
	if errors.As(err, &failed) && why != nil {
		return failed.withContext(why)
	}
	return err
}

// Unlock gives the lock back. It returns nil once a quorum of nodes is free of it, waits for a node timeout at most and
// does not care whether ctx is dead: what it could not reach by then is released when it comes back. A second Unlock
// is nil after a success and asks again after a failure. If the lock was lost before, its error matches ErrLost.
func (l *Lock) Unlock(context.Context) error {
	q, h := l.q, l.h
	q.alive(h)
	h.mu.Lock()
	first := h.end(ErrUnlocked)
	if !first && (h.released || !errors.Is(h.err, ErrUnlocked)) {
		defer h.mu.Unlock()
		if h.released {
			return nil
		}
		return h.err
	}
	ev := q.describe(h)
	h.mu.Unlock()
	if first {
		h.ended(ErrUnlocked)
	}

	r := q.giveBack(h, make(chan struct{}))
	if !first {
		return q.awaitRelease(r)
	}
	return q.finishRelease(r, ev)
}

// Do runs fn with Context and returns its error, joined with the lock's if it was lost meanwhile. It does not unlock.
func (l *Lock) Do(fn func(ctx context.Context) error) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.joinLoss(fn(l.Context()))
}

// joinLoss adds the loss to err, unless err tells of it already.
func (l *Lock) joinLoss(err error) error {
	if lost := l.Err(); errors.Is(lost, ErrLost) && !errors.Is(err, ErrLost) {
		return errors.Join(err, lost)
	}
	return err
}

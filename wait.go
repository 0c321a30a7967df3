package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// attempt runs one acquire round, with a token of its own.
type attempt func() (*hold, error)

// waiter decides when a waiting call asks the nodes again: after a pause that grows from round to round, with full
// jitter so that rivals do not stay in step, or as soon as enough of the holder's keys have run out.
//
// Progress: a round takes all of its resources on a node or none, and gives back what it got unless it won. So nobody
// keeps one resource while waiting for another, and no order of acquiring can deadlock; of rivals that split the votes
// one is, by the jitter, alone with the nodes sooner or later.
type waiter struct {
	retry retry
	limit time.Duration // the next pause is drawn from 0 to this
}

// pause is how long to wait after a round that failed with err.
func (w *waiter) pause(err error) time.Duration {
	w.limit = min(max(min(w.limit, forever)*2, w.retry.min), w.retry.max, forever)
	d := rand.N(w.limit + 1)
	var q *QuorumError
	if errors.As(err, &q) && q.expiry > 0 {
		d = min(d, q.expiry+rand.N(min(w.retry.min, q.expiry/8+time.Millisecond)))
	}
	return d
}

// acquire tries until it has the lock, ctx ends or closed is closed. denied is told of every round that failed. If ctx
// ends in the middle of a round, the error is that of the round before: it knows more.
func (w *waiter) acquire(ctx context.Context, closed <-chan struct{}, try attempt, denied func(error)) (*hold, error) {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	var last *QuorumError
	for {
		h, err := try()
		if err == nil {
			return h, nil
		}
		var q *QuorumError
		if !errors.As(err, &q) {
			return nil, err
		}
		if q.ctxErr == nil || last == nil {
			denied(err)
			last = q
		}
		if ctx.Err() != nil {
			return nil, last.withContext(ctx.Err())
		}
		timer.Reset(w.pause(err))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, last.withContext(ctx.Err())
		case <-closed:
			return nil, ErrClosed
		}
	}
}

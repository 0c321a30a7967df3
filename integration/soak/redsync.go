package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// redsyncLocker is github.com/go-redsync/redsync used as its documentation has it, by somebody who is careful: its
// defaults, but for the node timeout, which is ours (by itself it takes a twentieth of the TTL); contexts that really end
// calls; Extend at a third of the TTL, and again soon if that fails; and Until compared with the clock before each write
// (Valid is deprecated in its favour).
type redsyncLocker struct {
	rs      *redsync.Redsync
	clients []*redis.Client
	rec     *redlocktest.Recorder
	history func() time.Duration
	ttl     time.Duration
	timeout time.Duration // also for Extend and Unlock, which have none of their own
}

func newRedsync(a assignment, rec *redlocktest.Recorder) (locker, error) {
	l := &redsyncLocker{rec: rec, history: redlocktest.NewHistory().Now, ttl: a.TTL, timeout: a.NodeTimeout}
	var pools []redsyncredis.Pool
	for _, u := range a.Nodes {
		o, err := redis.ParseURL(u)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true
		c := redis.NewClient(o)
		l.clients = append(l.clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	l.rs = redsync.New(pools...)
	return l, nil
}

func (l *redsyncLocker) store(c *redis.Client) redlocktest.Store { return plainStore{c} }

func (l *redsyncLocker) close() error {
	var errs []error
	for _, c := range l.clients {
		errs = append(errs, c.Close())
	}
	l.rec.Add(redlocktest.Record{Kind: redlocktest.Ended})
	return errors.Join(errs...)
}

// acquire takes the first resource alone: redsync has no lock of several.
func (l *redsyncLocker) acquire(ctx context.Context, p plan) (hold, error) {
	began := l.history()
	m := l.rs.NewMutex("redsync:"+p.resources[0], redsync.WithExpiry(l.ttl), redsync.WithTries(1_000_000),
		redsync.WithTimeoutFactor(float64(l.timeout)/float64(l.ttl)))
	lock := m.LockContext
	if p.try {
		lock = m.TryLockContext
	}
	if err := lock(ctx); err != nil {
		l.rec.Add(redlocktest.Record{Kind: redlocktest.Failed, Resources: p.resources[:1], Began: began, Text: err.Error()})
		return nil, err
	}
	h := &redsyncHold{
		l: l, m: m, plan: p, began: time.Now(), until: m.Until(), lost: make(chan struct{}), stop: make(chan struct{}),
	}
	h.add(redlocktest.Record{Kind: redlocktest.Acquired, Began: began, Deadline: h.deadline(h.until)})
	h.running.Go(h.keep)
	return h, nil
}

// redsyncHold keeps a mutex of redsync alive, and tells when it is lost.
type redsyncHold struct {
	l       *redsyncLocker // this group is set by acquire, then read-only
	m       *redsync.Mutex
	plan    plan
	began   time.Time
	lost    chan struct{}
	stop    chan struct{}
	running sync.WaitGroup

	calls sync.Mutex // held during Extend: a mutex of redsync is not safe for concurrent use
	mu    sync.Mutex // guards the field below
	until time.Time
}

func (h *redsyncHold) deadline(t time.Time) time.Duration { return h.l.history() + time.Until(t) }

func (h *redsyncHold) add(r redlocktest.Record) {
	r.Hold, r.Resources = h.m.Value(), h.plan.resources[:1]
	h.l.rec.Add(r)
}

// keep extends every third of the TTL, and again soon when that failed, until the lock ran out.
func (h *redsyncHold) keep() {
	for {
		h.mu.Lock()
		until := h.until
		h.mu.Unlock()
		next := time.Until(until) - h.l.ttl*2/3
		if next < 0 {
			next = h.l.ttl / 20
		}
		if h.plan.lease > 0 || h.plan.maxHold > 0 && time.Since(h.began) > h.plan.maxHold {
			next = h.l.ttl
		}
		select {
		case <-h.stop:
			return
		case <-time.After(min(next, max(time.Until(until), 0))):
		}
		if !time.Now().Before(until) {
			text := "its lease is over by Until"
			if h.plan.lease > 0 || h.plan.maxHold > 0 {
				text = redlocktest.LeaseOver
			}
			h.add(redlocktest.Record{Kind: redlocktest.Lost, Deadline: h.deadline(until), Text: text})
			close(h.lost)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), h.l.timeout)
		_ = h.Extend(ctx)
		cancel()
	}
}

func (h *redsyncHold) Extend(ctx context.Context) error {
	h.calls.Lock()
	defer h.calls.Unlock()
	ctx, cancel := context.WithTimeout(ctx, h.l.timeout)
	defer cancel()
	if ok, err := h.m.ExtendContext(ctx); !ok {
		return cmp.Or(err, errors.New("not extended"))
	}
	until := h.m.Until()
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	h.add(redlocktest.Record{Kind: redlocktest.Extended, Deadline: h.deadline(until)})
	return nil
}

func (h *redsyncHold) Check() bool {
	at := h.l.history()
	h.mu.Lock()
	valid := time.Now().Before(h.until)
	h.mu.Unlock()
	if valid {
		h.add(redlocktest.Record{At: at, Kind: redlocktest.Checked})
	}
	return valid
}

func (h *redsyncHold) Lost() <-chan struct{} { return h.lost }

func (h *redsyncHold) Unlock(context.Context) error {
	began := h.l.history()
	h.add(redlocktest.Record{At: began, Kind: redlocktest.Releasing})
	close(h.stop)
	h.running.Wait()
	h.calls.Lock()
	defer h.calls.Unlock()
	r := redlocktest.Record{Kind: redlocktest.Released, Began: began}
	err := h.unlock()
	if err != nil {
		r.Text = err.Error()
	}
	h.add(r)
	return err
}

func (h *redsyncHold) unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), h.l.timeout)
	defer cancel()
	if ok, err := h.m.UnlockContext(ctx); !ok {
		return cmp.Or(err, errors.New("not unlocked"))
	}
	return nil
}

// Write adds one to the counter, as redlocktest's Holding does.
func (h *redsyncHold) Write(ctx context.Context, s redlocktest.Store) error {
	r := redlocktest.Record{Began: h.l.history(), Kind: redlocktest.Wrote}
	value, err := s.Increment(ctx, h.plan.resources[0], 0)
	r.Value = value
	if err != nil {
		r.Kind, r.Text, r.Value = redlocktest.Unknown, err.Error(), 0
	}
	h.add(r)
	return err
}

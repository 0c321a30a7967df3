package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// locker is a lock library under test, in one client process.
type locker interface {
	acquire(ctx context.Context, p plan) (hold, error)
	store(c *redis.Client) redlocktest.Store
	close() error
}

// hold is a lock that is held, and recorded.
type hold interface {
	Check() bool
	Write(ctx context.Context, s redlocktest.Store) error
	Extend(ctx context.Context) error
	Unlock(ctx context.Context) error
	Lost() <-chan struct{}
}

// lockers are the libraries that can be put under test, by the name that -lock takes.
var lockers = map[string]func(a assignment, rec *redlocktest.Recorder) (locker, error){
	"redlock": newRedlock,
	"redsync": newRedsync,
}

// withFences are those whose locks have fences.
var withFences = map[string]bool{"redlock": true}

type redlockLocker struct {
	pool *redlock.Pool
	rec  *redlocktest.Recorder
}

// newRedlock makes a pool with a guard as long as the TTL, which is the default.
func newRedlock(a assignment, rec *redlocktest.Recorder) (locker, error) {
	pool, err := redlock.Open(a.Nodes, redlock.WithTTL(a.TTL), redlock.WithNodeTimeout(a.NodeTimeout), redlock.WithLabel(a.Name),
		redlock.WithObserver(named(rec.Observer(), a.Nodes)))
	return &redlockLocker{pool, rec}, err
}

func (l *redlockLocker) acquire(ctx context.Context, p plan) (hold, error) {
	var opts []redlock.LockOption
	if p.lease > 0 {
		opts = append(opts, redlock.WithLease(p.lease))
	}
	if p.maxHold > 0 {
		opts = append(opts, redlock.WithMaxHold(p.maxHold))
	}
	take := l.rec.MultiLock
	if p.try {
		take = l.rec.TryMultiLock
	}
	h, err := take(ctx, l.pool, p.resources, opts...)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (l *redlockLocker) store(c *redis.Client) redlocktest.Store { return fencedStore{c} }

func (l *redlockLocker) close() error { return l.rec.Close(l.pool) }

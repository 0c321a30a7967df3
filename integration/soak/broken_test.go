package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

// A lock that keeps no promise: each client asks one node, and another than its rivals; its fences are dice; a loss is
// told half a second late; the store knows no fences; something stays on the node. A soak that has nothing to say about
// it would prove nothing about anybody.
func TestALockThatKeepsNoPromiseIsConvictedOfAll(t *testing.T) {
	if !slices.Contains(onServers(t), servers.Processes) {
		t.Skip("it is the checks that are tested: shown on processes")
	}
	o := short(t, servers.Processes)
	o.lock, o.faults, o.duration, o.pace, o.resources, o.ttl = "broken", "script-flush", 3*time.Second, time.Second, 2, time.Second
	kept, text := mustSoak(t, o)
	require.False(t, kept)
	for _, name := range []string{"exclusive", "fences", "store", "honest", "clean"} {
		require.Contains(t, text, "BROKEN  "+name)
	}
}

type brokenLocker struct {
	node *redis.Client
	rec  *redlocktest.Recorder
	now  func() time.Duration
	ttl  time.Duration
}

func newBroken(a assignment, rec *redlocktest.Recorder) (locker, error) {
	o, err := redis.ParseURL(a.Nodes[int(a.Name[1]-'0')%len(a.Nodes)])
	if err != nil {
		return nil, err
	}
	return &brokenLocker{redis.NewClient(o), rec, redlocktest.NewHistory().Now, 200 * time.Millisecond}, nil
}

func (l *brokenLocker) store(c *redis.Client) redlocktest.Store { return plainStore{c} }

func (l *brokenLocker) close() error {
	_ = l.node.Set(context.Background(), "left", "behind", 0).Err()
	l.rec.Add(redlocktest.Record{Kind: redlocktest.Ended})
	return l.node.Close()
}

func (l *brokenLocker) acquire(ctx context.Context, p plan) (hold, error) {
	h := &brokenHold{l: l, p: p, fence: 1 + rand.Uint64N(1e15), lost: make(chan struct{})}
	h.token = redis.NewScript("x").Hash()[:8] + time.Now().String()
	began := l.now()
	for !l.node.SetNX(ctx, p.resources[0], h.token, l.ttl).Val() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	h.deadline = l.now() + l.ttl
	h.add(redlocktest.Record{Kind: redlocktest.Acquired, Began: began, Deadline: h.deadline})
	h.late = time.AfterFunc(l.ttl+500*time.Millisecond, func() {
		h.once.Do(func() {
			h.add(redlocktest.Record{Kind: redlocktest.Lost, Deadline: h.deadline, Text: redlocktest.LeaseOver})
		})
	})
	return h, nil
}

type brokenHold struct {
	l        *brokenLocker
	p        plan
	token    string
	fence    uint64
	deadline time.Duration
	late     *time.Timer
	once     sync.Once // Lost or Releasing
	lost     chan struct{}
}

func (h *brokenHold) add(r redlocktest.Record) {
	r.Hold, r.Fence, r.Resources = h.token, h.fence, h.p.resources[:1]
	h.l.rec.Add(r)
}

func (h *brokenHold) Check() bool {
	h.add(redlocktest.Record{Kind: redlocktest.Checked})
	return true
}

func (h *brokenHold) Write(ctx context.Context, s redlocktest.Store) error {
	value, err := s.Increment(ctx, h.p.resources[0], h.fence)
	if err == nil {
		h.add(redlocktest.Record{Kind: redlocktest.Wrote, Value: value})
	}
	return err
}

func (h *brokenHold) Extend(context.Context) error { return nil }
func (h *brokenHold) Lost() <-chan struct{}        { return h.lost }

func (h *brokenHold) Unlock(ctx context.Context) error {
	h.once.Do(func() {
		h.late.Stop()
		h.add(redlocktest.Record{Kind: redlocktest.Releasing})
		h.add(redlocktest.Record{Kind: redlocktest.Released})
	})
	return h.l.node.Del(ctx, h.p.resources[0]).Err()
}

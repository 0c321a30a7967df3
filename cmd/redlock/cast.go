package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// client is one of the clients in a scenario, which know nothing of each other.
type client struct {
	name    string
	quiet   bool // its events are not shown
	pool    *redlock.Pool
	record  *redlocktest.Recorder
	links   []*redlocktest.Proxy // to each node
	clients []*redis.Client
	heard   []redlock.Event // for the stage's goroutine alone

	stop      func() // ends the measuring
	measuring sync.WaitGroup
}

// nodeTimeout is the library's default for a TTL.
func nodeTimeout(ttl time.Duration) time.Duration { return min(250*time.Millisecond, ttl/4) }

// enter makes a client, whose connections can be broken without touching the nodes.
func (s *stage) enter(name string, quiet bool) (*client, error) {
	c := &client{name: name, quiet: quiet, record: s.history.Client(name)}
	s.clients = append(s.clients, c)
	for i := range s.fleet.count() {
		link, err := redlocktest.NewProxy(s.fleet.addr(i))
		if err != nil {
			return nil, err
		}
		c.links = append(c.links, link)
		settings := s.fleet.options(i)
		dial := redis.NewDialer(&redis.Options{DialTimeout: s.nodeTimeout, TLSConfig: settings.TLSConfig})
		settings.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "tcp", link.Addr()) }
		c.clients = append(c.clients, redis.NewClient(settings))
	}
	var err error
	opts := []redlock.Option{redlock.WithTTL(s.ttl), redlock.WithNodeTimeout(s.nodeTimeout), redlock.WithKeyPrefix(s.prefix()), redlock.WithLabel(label(name)),
		redlock.WithObserver(both(c.record.Observer(), func(ev redlock.Event) {
			select {
			case s.events <- told{c, ev}:
			default: // nobody listens any more
			}
		}))}
	if c.pool, err = redlock.New(c.clients, append(opts, s.opts...)...); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.measuring.Go(func() { c.record.MeasureDelay(ctx) })
	return c, nil
}

func label(name string) string { return "drill " + name }

// close ends the client. A majority may be away, so what it could not give back runs out by itself.
func (c *client) close() {
	if c.pool != nil {
		_ = c.record.Close(c.pool)
		c.stop()
		c.measuring.Wait()
	}
	for _, r := range c.clients {
		_ = r.Close()
	}
	for _, l := range c.links {
		_ = l.Close()
	}
}

// both lets an observer and a listener see the events. The listener sees none of single rounds.
func both(o redlock.Observer, hear func(redlock.Event)) redlock.Observer {
	join := func(f func(redlock.Event)) func(redlock.Event) {
		return func(ev redlock.Event) {
			if f != nil {
				f(ev)
			}
			hear(ev)
		}
	}
	o.Renewed, o.RenewalFailed, o.Degraded, o.Restored = join(o.Renewed), join(o.RenewalFailed), join(o.Degraded), join(o.Restored)
	o.Lost, o.NodeLost, o.NodeBack = join(o.Lost), join(o.NodeLost), join(o.NodeBack)
	o.NodeUnsteady, o.NodeSteady, o.ClockStepped = join(o.NodeUnsteady), join(o.NodeSteady), join(o.ClockStepped)
	o.Warning = join(o.Warning)
	return o
}

// couple makes the two clients of most scenarios, and waits until all nodes have a vote.
func (s *stage) couple() (a, b *client, err error) {
	if a, err = s.enter("client A", false); err != nil {
		return nil, nil, err
	}
	if b, err = s.enter("client B", true); err != nil {
		return nil, nil, err
	}
	return a, b, s.ready(a, b)
}

// ready waits until each client has found all nodes with a vote, before anything is broken.
func (s *stage) ready(clients ...*client) error {
	if err := s.complete(); err != nil {
		return err
	}
	var why string
	ok := s.until(s.patience()+5*time.Second, func() bool {
		for _, c := range clients {
			if lock, err := c.pool.TryLock(s.ctx, s.resource+"-ready"); err == nil {
				_ = lock.Unlock(s.ctx)
			} else if why = s.reasons(err); !errors.Is(err, redlock.ErrHeld) {
				return false
			}
			for _, n := range c.pool.Stats().Nodes {
				if n.Down != "" || !n.Connected || !n.Steady {
					why = n.Node + ": " + n.Down + n.NoVote
					return false
				}
			}
		}
		return true
	})
	s.until(time.Second, func() bool { return len(s.events) == 0 })
	s.met = true
	if !ok && s.ctx.Err() == nil {
		return fmt.Errorf("not all nodes are up and have a vote, so nothing was broken yet: %s", s.names.Replace(why))
	}
	return nil
}

// acquire takes the lock for c.
func (s *stage) acquire(c *client) (*redlocktest.Holding, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.patience())
	defer cancel()
	s.step(c.name+" locks", "%s", s.resource)
	hold, err := c.record.Lock(ctx, c.pool, s.resource)
	if err != nil {
		s.line.said(time.Now(), red, "not acquired", "%s", s.reasons(err))
		return nil, errOver
	}
	s.line.said(time.Now(), green, "acquired", "after %.1f ms, valid for %s, fence %d", milliseconds(time.Since(began)),
		ms(time.Until(hold.ValidUntil())), hold.Fence())
	return hold, nil
}

// acquireFully takes the lock for c, on all nodes.
func (s *stage) acquireFully(c *client) (*redlocktest.Holding, error) {
	hold, err := s.acquire(c)
	if err != nil {
		s.promise("acquire", "a free lock is acquired", false)
		return nil, err
	}
	full := s.until(s.ttl, func() bool { return hold.Margin() == s.minority() })
	s.promise("acquire", "a free lock is acquired, on all nodes", full)
	if !full {
		return nil, errOver
	}
	return hold, nil
}

// release gives the lock back.
func (s *stage) release(c *client, hold *redlocktest.Holding) bool {
	s.step(c.name+" unlocks", "")
	if err := hold.Unlock(s.ctx); err != nil {
		s.line.said(time.Now(), red, "not unlocked", "%s", s.reasons(err))
		return false
	}
	s.line.said(time.Now(), green, "unlocked", "a majority of nodes is free of it")
	return true
}

// handOver ends a scenario in which A kept the lock: it is given back and B gets it.
func (s *stage) handOver(a, b *client, hold *redlocktest.Holding) {
	ok := s.release(a, hold)
	next, err := s.acquire(b)
	ok = err == nil && s.release(b, next) && ok
	s.promise("next", "once it is given back the next client gets the lock", ok)
}

// rival tries for the lock all the time, in a goroutine of its own. end stops it and waits for it.
type rival struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	tries int
	got   []time.Time // when it got the lock
}

// press lets c try.
func (s *stage) press(c *client) *rival {
	ctx, cancel := context.WithCancel(s.ctx)
	r := &rival{cancel: cancel}
	pause := max(20*time.Millisecond, s.ttl/60)
	r.done.Go(func() {
		for ctx.Err() == nil {
			hold, err := c.record.TryLock(ctx, c.pool, s.resource)
			r.mu.Lock()
			if r.tries++; err == nil {
				r.got = append(r.got, time.Now())
			}
			r.mu.Unlock()
			if err == nil {
				_ = hold.Unlock(ctx)
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	s.line.row(time.Now(), bold, c.name+" tries", "for the same lock, again and again")
	return r
}

func (r *rival) end() {
	r.cancel()
	r.done.Wait()
}

// first is when it got the lock first, and how often it had tried so far.
func (r *rival) first() (at time.Time, tries int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) > 0 {
		at = r.got[0]
	}
	return at, r.tries
}

// gotAfter says whether it got the lock after a moment.
func (r *rival) gotAfter(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.got, func(at time.Time) bool { return at.After(since) })
}

// shut ends the rival and promises that it never got in while holder, if not nil, had not lost the lock.
func (s *stage) shut(r *rival, holder *client) {
	r.end()
	at, tries := r.first()
	ok := at.IsZero() || holder != nil && holder.heardSince(0, func(ev redlock.Event) bool { return ev.Name == "lost" && ev.Time.Before(at) })
	switch {
	case at.IsZero():
		s.line.said(time.Now(), plain, "client B", "tried %d times and never got in", tries)
	case ok:
		s.line.said(at, plain, "client B", "got in, after client A had lost the lock")
	default:
		s.line.said(at, red, "client B", "GOT IN while client A held the lock")
	}
	s.promise("shut-out", fmt.Sprintf("a second client, which tries all the time (%d times here), never gets in while the lock is held", tries), ok)
}

// heardSince says whether c heard such an event after the first n.
func (c *client) heardSince(n int, want func(redlock.Event) bool) bool {
	for _, ev := range c.heard[n:] {
		if want(ev) {
			return true
		}
	}
	return false
}

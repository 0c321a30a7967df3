package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// The scenarios in which only connections are broken, and those of many clients.

// frozenNode lets one node hang.
func frozenNode(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	hung := s.last(1)
	s.step("freeze", "node %d, as both clients see it", s.fleet.count())
	s.each("frozen", true, hung, s.clients, (*redlocktest.Proxy).Freeze)
	s.promise("held", "the lock is held and renewed for more than a TTL on the others", s.keepsRenewing(a, hold, s.fleet.count()-1))
	s.fast(a, s.nodeTimeout/2, "nobody waits for the node that hangs")
	s.step("thaw", "it: it does now what it was asked while it hung")
	s.each("frozen", false, hung, s.clients, (*redlocktest.Proxy).Thaw)
	back := s.until(s.patience(), func() bool { return hold.Margin() == s.minority() })
	s.promise("restored", "the lock is given to it again, and stays held", back && hold.Check())
	s.shut(r, a)
	s.handOver(a, b, hold)
	return nil
}

// fast takes and gives back another lock a few times and promises that half of that took less than limit each.
func (s *stage) fast(c *client, limit time.Duration, why string) {
	const rounds = 20
	var took []time.Duration
	for range rounds {
		began := time.Now()
		hold, err := c.record.TryLock(s.ctx, c.pool, s.resource+"-other")
		if err != nil {
			s.line.said(time.Now(), red, "not acquired", "%s", s.reasons(err))
			continue
		}
		_ = hold.Unlock(s.ctx)
		took = append(took, time.Since(began))
		s.until(0, func() bool { return false })
	}
	slices.Sort(took)
	ok := len(took) == rounds
	if ok {
		half, worst := took[rounds/2], took[rounds-1]
		s.line.said(time.Now(), plain, "another lock", "taken and given back %d times: half of them within %.1f ms, all within %.1f ms", rounds,
			milliseconds(half), milliseconds(worst))
		ok = half < limit
	}
	s.promise("fast", fmt.Sprintf("%s: half of %d other locks were taken and given back within %s", why, rounds, ms(limit)), ok)
}

// slowNodes makes a minority answer late.
func slowNodes(s *stage) error {
	a, b, err := s.couple()
	if err != nil {
		return err
	}
	delay := s.nodeTimeout * 4 / 5
	slow := s.last(s.minority())
	s.step("slow down", "%d of %d nodes: each answer takes %v longer", len(slow), s.fleet.count(), delay)
	s.each("slow", true, slow, s.clients, func(p *redlocktest.Proxy) { p.Delay(delay) })
	hold, err := s.acquire(a)
	s.promise("acquire", "a free lock is acquired", err == nil)
	if err != nil {
		return err
	}
	r := s.press(b)
	defer r.end()
	s.fast(a, delay/2, "locks are as fast as the fastest majority")
	s.promise("held", "the lock is held and renewed for more than a TTL", s.keepsRenewing(a, hold, s.fleet.count()))
	s.step("speed up", "again")
	s.each("slow", false, slow, s.clients, func(p *redlocktest.Proxy) { p.Delay(0) })
	s.shut(r, a)
	s.handOver(a, b, hold)
	return nil
}

// lostReply loses answers on their way.
func lostReply(s *stage) error {
	a, b, err := s.couple()
	if err != nil {
		return err
	}

	// 1. A minority's answers get lost: the lock is had all the same.
	few, many := s.last(s.minority()), s.last(s.majority())
	s.step("lose", "the next answer of %d of %d nodes to client A", len(few), s.fleet.count())
	s.each("reply lost", true, few, []*client{a}, func(p *redlocktest.Proxy) { p.DropReplies(1) })
	hold, err := s.acquire(a)
	s.promise("acquire", "the lock is acquired although answers are lost", err == nil)
	if err != nil {
		return err
	}
	s.each("reply lost", false, few, []*client{a}, func(p *redlocktest.Proxy) { p.DropReplies(0) })
	s.handOver(a, b, hold)

	// 2. A majority's answers get lost: they have the lock, and the client does not know.
	s.step("lose", "all answers of %d of %d nodes to client A", len(many), s.fleet.count())
	s.each("reply lost", true, many, []*client{a}, func(p *redlocktest.Proxy) { p.SwallowReplies(1 << 20) })
	s.step("client A tries", "once")
	_, err = a.record.TryLock(s.ctx, a.pool, s.resource)
	if err != nil {
		s.line.said(time.Now(), plain, "not acquired", "%s", s.reasons(err))
	}
	s.promise("unsure", "without a majority's answers the lock is not acquired", errors.Is(err, redlock.ErrNoQuorum))
	s.step("mend", "the network")
	s.each("reply lost", false, many, []*client{a}, func(p *redlocktest.Proxy) { p.SwallowReplies(0) })
	began := time.Now()
	next, err := s.acquire(b)
	ok := err == nil && time.Since(began) < s.ttl*2/3
	if err == nil {
		ok = s.release(b, next) && ok
	}
	s.promise("undone", "what the failed attempt has left on the nodes is taken back: the next client need not wait for its TTL", ok)
	return nil
}

// contend lets five clients fight for two locks.
func contend(s *stage) error {
	const fighters = 5
	for k := range fighters {
		if _, err := s.enter(fmt.Sprintf("client %c", 'A'+k), true); err != nil {
			return err
		}
	}
	if err := s.ready(s.clients...); err != nil {
		return err
	}
	resources := []string{s.resource, s.resource + "-other"}
	store := redlocktest.NewStore()
	s.step("fight", "%d clients for %d locks", fighters, len(resources))

	// 1. They fight until they are stopped.
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	counts := make([]int, fighters)
	var mu sync.Mutex // guards counts
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for k, c := range s.clients {
		all.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				within, cancel := context.WithTimeout(ctx, s.patience())
				hold, err := c.record.Lock(within, c.pool, resources[(k+round)%len(resources)])
				cancel()
				if err != nil {
					continue
				}
				mu.Lock()
				counts[k]++
				mu.Unlock()
				_ = hold.Write(s.ctx, store)
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(1+rand.IntN(20)) * time.Millisecond):
				}
				hold.Check()
				_ = hold.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	total := func() (sum int) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range counts {
			sum += n
		}
		return sum
	}

	// 2. Meanwhile one node after the other hangs.
	n := s.fleet.count()
	pause := max(6*s.ttl/time.Duration(2*n), 2*s.nodeTimeout)
	for i := range n {
		s.each("frozen", true, []int{i}, s.clients, (*redlocktest.Proxy).Freeze)
		s.rest(pause)
		s.each("frozen", false, []int{i}, s.clients, (*redlocktest.Proxy).Thaw)
		s.rest(pause)
		s.line.row(time.Now(), plain, fmt.Sprintf("node %d hung", i+1), fmt.Sprintf("for %v; %d locks acquired so far", pause, total()))
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
	stop()
	all.Wait()
	fewest := slices.Min(counts)
	s.promise("served", fmt.Sprintf("every client got its turn (%d locks acquired, the unluckiest client got %d)", total(), fewest), fewest > 0)
	written := store.Value(resources[0]) + store.Value(resources[1])
	s.promise("written", fmt.Sprintf("no write under a lock was lost or refused (%d writes for %d locks)", written, total()), int(written) == total())
	return nil
}

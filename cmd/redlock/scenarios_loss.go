package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// The scenarios in which a lock must be lost.

// loseMajority stops a majority of nodes under a held lock.
func loseMajority(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	s.step("stop", "%d of %d nodes: nobody can know any more who holds the lock", s.majority(), s.fleet.count())
	if err := s.stop(s.last(s.majority())...); err != nil {
		return err
	}
	since := time.Now()
	s.loses(hold)
	s.step("wait", "a TTL more: client B must not get in without a majority")
	s.rest(s.ttl)
	s.blocked(r, since)
	s.step("start", "them again")
	if err := s.start(s.last(s.majority())...); err != nil {
		return err
	}
	s.recovers(b)
	return nil
}

// loses waits for the loss of the lock and promises that it came.
func (s *stage) loses(hold *redlocktest.Holding) {
	s.step("wait", "for the deadline of client A's lock")
	deadline := hold.ValidUntil()
	lost := s.until(s.patience(), func() bool {
		if hold.Valid() {
			deadline = hold.ValidUntil()
		}
		return hold.Err() != nil
	})
	if r, ok := s.lossOf(hold.Token()); lost && ok {
		late := r.At - r.Deadline
		s.line.said(time.Now(), plain, "deadline", "was at %.3f; told %.1f ms later, %.1f ms before another client could own the lock",
			deadline.Sub(s.line.start).Seconds(), milliseconds(late), milliseconds(spareOf(s.ttl)-late))
	}
	s.promise("lost", "a lock that cannot be renewed is lost, says so, and Valid() is false", lost && errors.Is(hold.Err(), redlock.ErrLost) && !hold.Valid())
}

// lossOf waits for what the holder itself recorded of its loss.
func (s *stage) lossOf(token string) (loss redlocktest.Record, found bool) {
	s.until(time.Second, func() bool {
		for _, r := range s.history.Records() {
			if r.Kind == redlocktest.Lost && r.Hold == token {
				loss, found = r, true
			}
		}
		return found && len(s.events) == 0
	})
	return loss, found
}

// blocked ends the rival and promises that it did not get in since a majority was away. What was granted just before
// may have been on its way.
func (s *stage) blocked(r *rival, since time.Time) {
	r.end()
	in := r.gotAfter(since.Add(s.nodeTimeout))
	_, tries := r.first()
	s.line.said(time.Now(), plain, "client B", "tried %d times, got in: %v", tries, yesNo(in))
	s.promise("blocked", fmt.Sprintf("while a majority is away nobody gets the lock (%d tries)", tries), !in)
}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "no"
}

// recovers promises that c gets the lock now.
func (s *stage) recovers(c *client) {
	hold, err := s.acquire(c)
	ok := err == nil && s.release(c, hold)
	s.promise("recover", "when all is mended the lock can be acquired again, within two TTLs", ok)
}

// forgetful makes a lock depend on a node that then forgets it.
func forgetful(s *stage) error {
	a, b, err := s.couple()
	if err != nil {
		return err
	}
	n, m := s.fleet.count(), s.majority()
	s.step("stop", "%d of %d nodes: what is locked now is on a bare majority", n-m, n)
	if err := s.stop(s.last(n - m)...); err != nil {
		return err
	}
	hold, err := s.acquire(a)
	s.promise("acquire", "the lock is acquired on a bare majority", err == nil)
	if err != nil {
		return err
	}
	r := s.press(b)
	defer r.end()

	// Nodes m to n-1 are down; node m-1 forgets. With them it would make a majority that knows nothing of client A.
	// Client A is cut off from all, or it would give the lock to them again.
	all := s.last(n)
	s.step("cut", "client A off from all nodes: it cannot give them the lock again")
	s.each("cut off", true, all, []*client{a}, func(p *redlocktest.Proxy) { p.BlackHole(true) })
	s.step("restart", "node %d, which client A's lock depends on, and start the others", m)
	if err := s.stop(m - 1); err != nil {
		return err
	}
	back := slices.Concat([]int{m - 1}, s.last(n-m))
	if err := s.start(back...); err != nil {
		return err
	}
	deadline := hold.ValidUntil()
	if hold.Err() != nil || !hold.Valid() {
		return fmt.Errorf("stopping and starting took longer than the lock lives (%v), so there was nothing to see; give a longer --ttl", s.ttl)
	}
	s.line.said(time.Now(), plain, "now", "%d of %d nodes are empty, and client A believes in its lock for %s yet", len(back), n, ms(time.Until(deadline)))
	s.until(s.patience()+s.ttl, func() bool {
		if hold.Valid() {
			deadline = hold.ValidUntil()
		}
		at, _ := r.first()
		return !at.IsZero()
	})
	r.end()
	at, tries := r.first()
	if !at.IsZero() {
		s.line.said(at, green, "client B", "got in, %.0f ms after client A's lock had ended", milliseconds(at.Sub(deadline)))
	}
	s.promise("guarded", fmt.Sprintf("the nodes that have forgotten the lock let nobody in before it has ended (%d tries)", tries), at.IsZero() || at.After(deadline))
	s.promise("recover", "afterwards the next client gets the lock, within two TTLs or so", !at.IsZero())
	s.step("mend", "the network")
	s.each("cut off", false, all, []*client{a}, func(p *redlocktest.Proxy) { p.BlackHole(false) })
	if hold.Valid() { // as nobody should
		s.release(a, hold)
	}
	return nil
}

// frozenMajority lets a majority hang until the lock has ended, and then do what was asked meanwhile.
func frozenMajority(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	frozen := s.last(s.majority())
	s.step("freeze", "%d of %d nodes, as both clients see them", s.majority(), s.fleet.count())
	s.each("frozen", true, frozen, s.clients, (*redlocktest.Proxy).Freeze)
	since := time.Now()
	s.loses(hold)
	s.step("wait", "a TTL more, with the majority hanging")
	s.rest(s.ttl)
	s.blocked(r, since)
	s.step("thaw", "them: each does now what it was asked while it hung")
	s.each("frozen", false, frozen, s.clients, (*redlocktest.Proxy).Thaw)
	s.recovers(b)
	return nil
}

// each breaks or mends the ways from clients to nodes.
func (s *stage) each(what string, broken bool, nodes []int, clients []*client, do func(*redlocktest.Proxy)) {
	for _, i := range nodes {
		for _, c := range clients {
			if broken {
				s.fault(what, i, c)
			}
			do(c.links[i])
			if !broken {
				s.healed(what, i, c)
			}
		}
	}
}

// partition cuts the holder off from a majority. The other client sees all nodes.
func partition(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	cut := s.last(s.majority())
	s.step("cut", "client A off from %d of %d nodes; client B sees them all", s.majority(), s.fleet.count())
	s.each("cut off", true, cut, []*client{a}, func(p *redlocktest.Proxy) { p.BlackHole(true) })
	deadline := hold.ValidUntil()
	s.loses(hold)
	s.until(s.patience(), func() bool { at, _ := r.first(); return !at.IsZero() })
	r.end()
	at, tries := r.first()
	if !at.IsZero() {
		s.line.said(at, green, "client B", "got in at its try %d", tries)
	}
	s.promise("shut-out", "the other client does not get in before the holder's lock has ended", at.IsZero() || at.After(deadline))
	s.promise("next", "it does get in then, although the holder cannot give anything back", !at.IsZero())
	s.step("mend", "the network")
	s.each("cut off", false, cut, []*client{a}, func(p *redlocktest.Proxy) { p.BlackHole(false) })
	s.recovers(a)
	return nil
}

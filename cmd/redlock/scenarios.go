package main

import (
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// scenario is one drill with a name.
type scenario struct {
	name, text string
	needs      []power
	pauses     bool                                         // it stops a process of its own with SIGSTOP
	most       func(n int) int                              // how many of n nodes it stops at once; nil is none
	takes      func(n int, ttl time.Duration) time.Duration // roughly, without waits for commands
	play       func(s *stage) error
}

func one(int) int          { return 1 }
func minorityOf(n int) int { return n - majorityOf(n) }
func majorityOf(n int) int { return n/2 + 1 }
func ttls(k int) func(int, time.Duration) time.Duration {
	return func(_ int, ttl time.Duration) time.Duration { return time.Duration(k)*ttl + 2*time.Second }
}

// scenarios are all of them, in the order of "all": from the harmless to the worst.
var scenarios = []scenario{
	{name: "one-node", text: "one node dies under a held lock and comes back empty", needs: []power{canStop}, most: one,
		takes: ttls(5), play: contested(away(one))},
	{name: "two-nodes", text: "as many nodes die as may (two of five), and come back empty", needs: []power{canStop}, most: minorityOf,
		takes: ttls(5), play: contested(away(minorityOf))},
	{name: "majority", text: "a majority dies: the lock is lost by its deadline and nobody gets it; then they return",
		needs: []power{canStop, canOutage}, most: majorityOf, takes: ttls(5), play: contested(loseMajority)},
	{name: "restart", text: "a node that the lock depends on restarts and has forgotten it: it must not help another in",
		needs: []power{canStop, canOutage}, most: majorityOf, takes: ttls(6), play: forgetful},
	{name: "rolling", text: "all nodes are restarted one after the other under a held lock", needs: []power{canStop}, most: one,
		takes: func(n int, ttl time.Duration) time.Duration { return time.Duration(2*n) * ttl }, play: contested(rolling)},
	{name: "flush", text: "one node after the other loses the drill's data while it runs", takes: func(n int, ttl time.Duration) time.Duration { return time.Duration(2*n) * ttl },
		play: contested(flush)},
	{name: "frozen-node", text: "a node hangs: it accepts connections and answers nothing", takes: ttls(4), play: contested(frozenNode)},
	{name: "frozen-majority", text: "a majority hangs beyond the lock's deadline, and then does all that it was asked meanwhile",
		takes: ttls(5), play: contested(frozenMajority)},
	{name: "slow-node", text: "two of five nodes answer late: locks are as fast as the others", takes: ttls(3), play: slowNodes},
	{name: "partition", text: "the holder is cut off from a majority, the other client is not", takes: ttls(5), play: contested(partition)},
	{name: "lost-reply", text: "nodes do what they are asked and the answers get lost", takes: ttls(4), play: lostReply},
	{name: "paused-holder", text: "the holder's process is stopped (SIGSTOP) beyond its lock's life, goes on, and writes too late", pauses: true,
		takes: ttls(4), play: pausedHolder},
	{name: "clock", text: "a node's clock jumps an hour ahead, another's an hour back", needs: []power{canClock}, takes: ttls(6), play: contested(clocks)},
	{name: "contend", text: "five clients fight for two locks while nodes hang, one after the other; each writes to a store that checks fences",
		takes: ttls(8), play: contend},
}

// contest is a scenario on a lock that client A holds on all nodes, and that client B tries for all the time.
type contest func(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error

// contested brings a contest about.
func contested(play contest) func(*stage) error {
	return func(s *stage) error {
		a, b, err := s.couple()
		if err != nil {
			return err
		}
		hold, err := s.acquireFully(a)
		if err != nil {
			return err
		}
		r := s.press(b)
		defer r.end()
		return play(s, a, b, hold, r)
	}
}

// away lets so many nodes die and return.
func away(how func(int) int) contest {
	return func(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
		n := how(s.fleet.count())
		s.step("stop", "%d of %d nodes", n, s.fleet.count())
		if err := s.stop(s.last(n)...); err != nil {
			return err
		}
		s.promise("held", "the lock is held and renewed for more than a TTL on the nodes that are left",
			s.keepsRenewing(a, hold, s.fleet.count()-n))

		s.step("start", "them again")
		if err := s.start(s.last(n)...); err != nil {
			return err
		}
		back := s.until(s.patience(), func() bool { return hold.Margin() == s.minority() })
		s.promise("restored", "the lock is given to the nodes that return, and stays held", back && hold.Check())
		s.shut(r, a)
		s.handOver(a, b, hold)
		return nil
	}
}

// keepsRenewing waits until the lock has outlived what it had by more than a TTL, by renewals on no more than n nodes.
func (s *stage) keepsRenewing(c *client, hold interface{ Valid() bool }, n int) bool {
	from, began := len(c.heard), time.Now()
	renewed := func(ev redlock.Event) bool {
		return ev.Name == "renewed" && ev.Granted <= n && ev.Time.Sub(began) > s.ttl
	}
	return s.until(s.patience(), func() bool { return !hold.Valid() || c.heardSince(from, renewed) }) && hold.Valid()
}

// rolling restarts every node.
func rolling(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	n, steady := s.fleet.count(), 0
	for i := range n {
		s.step("restart", "node %d, %d of %d", i+1, i+1, n)
		from := len(a.heard)
		if err := s.stop(i); err != nil {
			return err
		}
		missed := func(ev redlock.Event) bool { return ev.Name == "node_lost" && ev.Node == s.fleet.addr(i) }
		s.until(s.patience(), func() bool { return a.heardSince(from, missed) })
		if err := s.start(i); err != nil {
			return err
		}
		if s.until(s.patience(), func() bool { return a.steady(i) && b.steady(i) && hold.Margin() == s.minority() }) {
			steady++
		}
		if i < n-1 && s.settle > 0 {
			s.line.row(time.Now(), dim, "pause", "for "+s.settle.String()+" (--settle), so that other locks can rely on "+s.names.Replace(s.fleet.addr(i)))
			s.rest(s.settle)
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if hold.Err() != nil { // nothing more to see
			break
		}
	}
	s.promise("steady", "each node gets its vote and the lock back within a TTL or so", steady == n)
	s.promise("held", "the lock is held throughout, though every node has forgotten it once", hold.Check())
	s.shut(r, a)
	s.handOver(a, b, hold)
	return nil
}

// steady says whether the client lets node i vote.
func (c *client) steady(i int) bool {
	n := c.pool.Stats().Nodes[i]
	return n.Down == "" && n.Connected && n.Steady
}

// flush takes the data from every node, while it runs.
func flush(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	steady := 0
	for i := range s.fleet.count() {
		from := len(a.heard)
		s.step("empty", "node %d: everything of the drill on it is deleted", i+1)
		s.fault("flushed", i, nil)
		if err := s.fleet.forget(s.ctx, i, s.prefix()+s.resource, s.prefix()+"redlock:node"); err != nil {
			return err
		}
		s.healed("flushed", i, nil)
		missed := func(ev redlock.Event) bool { return ev.Name == "node_unsteady" && ev.Node == s.fleet.addr(i) }
		ok := s.until(s.patience(), func() bool { return a.heardSince(from, missed) })
		ok = s.until(s.patience(), func() bool { return a.steady(i) && b.steady(i) && hold.Margin() == s.minority() }) && ok
		if ok {
			steady++
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if hold.Err() != nil { // nothing more to see
			break
		}
	}
	s.promise("noticed", "each loss of data is noticed, costs that node its vote for a TTL, and is healed", steady == s.fleet.count())
	s.promise("held", "the lock is held throughout, though every node has forgotten it once", hold.Check())
	s.shut(r, a)
	s.handOver(a, b, hold)
	return nil
}

// clocks steps two nodes' clocks.
func clocks(s *stage, a, b *client, hold *redlocktest.Holding, r *rival) error {
	noticed := true
	for k, step := range []time.Duration{time.Hour, -time.Hour} {
		i := s.fleet.count() - 1 - k
		from := len(a.heard)
		s.step("set the clock", "of node %d by %v", i+1, step)
		s.fault("clock set", i, nil)
		s.fleet.stepClock(i, step)
		s.healed("clock set", i, nil)
		seen := func(ev redlock.Event) bool { return ev.Name == "clock_stepped" && ev.Node == s.fleet.addr(i) }
		noticed = s.until(s.patience(), func() bool { return a.heardSince(from, seen) }) && noticed
		s.until(s.patience(), func() bool { return a.steady(i) && b.steady(i) && hold.Margin() == s.minority() })
	}
	s.promise("noticed", "a clock that was set is noticed, and costs that node its vote for a TTL", noticed)
	s.promise("held", "the lock is held throughout", hold.Check())
	s.shut(r, a)
	s.handOver(a, b, hold)
	return nil
}

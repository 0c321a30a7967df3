package main

import (
	"fmt"
	"strings"
)

// apply is what node i can do with a request of client c that is under way.
func (r timedRules) apply(s timedState, c, i int, emit func(string, timedState)) {
	who, n := s.clients[c], s.nodes[i]
	name := string(rune('A' + c))
	mine, free := n.owner == uint8(c+1), n.owner == 0
	if who.phase == timedHolding && (mine && n.left < r.ttl || free) {
		// A renewal of an earlier round, whose reply nobody waits for any more, may be applied at any time.
		emit(fmt.Sprintf("node %d does an old renewal of %s", i+1, name), s.write(i, c, r.ttl))
	}
	if n.by[c].ask != timedAsked {
		return
	}
	steady := n.unsteady == 0
	to, votes := s, false
	switch {
	case !mine && !free:
	case who.renewing && mine:
		to, votes = s.write(i, c, r.ttl), steady || r.unsteadyRenews
	case who.age > r.latest: // too late to create a key
	case who.renewing:
		to, votes = s.write(i, c, r.ttl), r.refillVotes && (steady || r.unsteadyRenews)
	case steady || r.unsteadyAcquires:
		to, votes = s.write(i, c, r.ttl), true
	case r.unsteadyWrites:
		to = s.write(i, c, r.ttl)
	}
	verb, reply := "an acquire", "no"
	if who.renewing {
		verb = "a renewal"
	}
	to.nodes[i].by[c].ask = timedNone
	if votes {
		to.nodes[i].by[c].ask, reply = timedYes, "yes"
	}
	emit(fmt.Sprintf("node %d does %s of %s: %s", i+1, verb, name, reply), to)
}

// write sets or prolongs the key of c on node i.
func (s timedState) write(i, c int, ttl uint8) timedState {
	s.nodes[i].owner, s.nodes[i].left = uint8(c+1), ttl
	return s
}

// count lets client c see the confirmation of node i.
func (r timedRules) count(s timedState, c, i int, emit func(string, timedState)) {
	if s.nodes[i].by[c].ask != timedYes {
		return
	}
	who := &s.clients[c]
	good := minus(r.lease(), who.age)
	if r.fromReply {
		good = r.lease()
	}
	if r.noElapsedCheck {
		good = max(good, 1) // the caller believes what it is told at least for that moment
	}
	by := &s.nodes[i].by[c]
	by.ask, by.good = timedNone, max(by.good, good)
	need := r.quorum()
	if who.phase == timedHolding && r.fewerRenew {
		need--
	}
	if left := r.latestOf(s, c, need); left > 0 {
		who.phase, who.left = timedHolding, max(who.left, left)
	}
	emit(fmt.Sprintf("%c counts node %d", 'A'+c, i+1), s)
}

// latestOf returns what is left of the n-th best confirmation that c has.
func (r timedRules) latestOf(s timedState, c, n int) uint8 {
	for left := r.ttl; left > 0; left-- {
		count := 0
		for i := range r.nodes {
			if s.nodes[i].by[c].good >= left {
				count++
			}
		}
		if count >= n {
			return left
		}
	}
	return 0
}

// settle notes who owned while another did not, and forgets what can no longer matter.
func (r timedRules) settle(s timedState) timedState {
	for c := range s.clients {
		who, other := &s.clients[c], s.clients[1-c]
		if who.phase == timedHolding && !who.valid() && other.valid() {
			who.lapsed = true
		}
		if who.phase != timedHolding || !r.useless(who.age) {
			continue
		}
		for i := range r.nodes {
			s.nodes[i].by[c].ask = timedNone
		}
	}
	return s
}

// canonical picks one state of those that differ only in the names of nodes and clients.
func (r timedRules) canonical(s timedState) timedState {
	swapped := s
	swapped.clients[0], swapped.clients[1] = s.clients[1], s.clients[0]
	for i := range r.nodes {
		n := &swapped.nodes[i]
		n.by[0], n.by[1] = n.by[1], n.by[0]
		if n.owner != 0 {
			n.owner = 3 - n.owner
		}
	}
	sortTimed(s.nodes[:r.nodes])
	sortTimed(swapped.nodes[:r.nodes])
	if timedLess(swapped, s) {
		return swapped
	}
	return s
}

// useless tells that replies of a round of this age give no validity any more; what its requests may still write,
// an old renewal writes as well.
func (r timedRules) useless(age uint8) bool {
	return age >= r.lease() && !r.fromReply && !r.noElapsedCheck
}

func sortTimed(nodes []timedNode) {
	for i := 1; i < len(nodes); i++ {
		for j := i; j > 0 && nodes[j].packed() < nodes[j-1].packed(); j-- {
			nodes[j], nodes[j-1] = nodes[j-1], nodes[j]
		}
	}
}

// packed is a number for each different node; every field is below 16.
func (n timedNode) packed() uint64 {
	p := uint64(n.owner)<<8 | uint64(n.left)<<4 | uint64(n.unsteady)
	for _, by := range n.by {
		p = p<<8 | uint64(by.ask)<<4 | uint64(by.good)
	}
	return p
}

func (c timedClient) packed() uint64 {
	p := uint64(c.phase)<<8 | uint64(c.age)<<4 | uint64(c.left)
	if c.renewing {
		p |= 1 << 12
	}
	if c.lapsed {
		p |= 1 << 13
	}
	return p
}

func timedLess(a, b timedState) bool {
	for c := range a.clients {
		if x, y := a.clients[c].packed(), b.clients[c].packed(); x != y {
			return x < y
		}
	}
	for i := range a.nodes {
		if x, y := a.nodes[i].packed(), b.nodes[i].packed(); x != y {
			return x < y
		}
	}
	return false
}

// String is what traces show.
func (s timedState) String() string {
	var b strings.Builder
	for c, who := range s.clients {
		phases := [...]string{"idle", "trying", "holding"}
		fmt.Fprintf(&b, "%c %s", 'A'+c, phases[who.phase])
		if who.phase != timedIdle {
			fmt.Fprintf(&b, ", round %d old, %d left", who.age, who.left)
		}
		b.WriteString(" | ")
	}
	for i, n := range s.nodes {
		fmt.Fprintf(&b, "%d:", i+1)
		if n.owner != 0 {
			fmt.Fprintf(&b, " key of %c for %d", 'A'-1+n.owner, n.left)
		}
		if n.unsteady > 0 {
			fmt.Fprintf(&b, " guard %d", n.unsteady)
		}
		for c, by := range n.by {
			if by.good > 0 {
				fmt.Fprintf(&b, " confirmed %c for %d", 'A'+c, by.good)
			}
		}
		b.WriteString("; ")
	}
	return b.String()
}

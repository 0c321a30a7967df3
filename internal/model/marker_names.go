package main

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// canonical picks one state of those that differ only in the names of nodes, clients, writes, runs and nonces.
func (r markerRules) canonical(s markerState) markerState {
	first := r.named(s)
	if r.clients < 2 {
		return first
	}
	if other := r.named(r.swapped(s)); markerRank(other) < markerRank(first) {
		return other
	}
	return first
}

// swapped gives each client the name of the other.
func (r markerRules) swapped(s markerState) markerState {
	for i := range r.nodes {
		n := &s.nodes[i]
		n.views[0], n.views[1] = n.views[1], n.views[0]
		for w := range n.writes {
			if n.writes[w].way != markerNoWrite {
				n.writes[w].by = 1 - n.writes[w].by
			}
		}
	}
	return s
}

// named gives everything but the clients the names by which states are kept.
func (r markerRules) named(s markerState) markerState {
	var ranks [3]uint64
	for i := range r.nodes {
		s.nodes[i] = s.nodes[i].ordered(r.writes)
		if r.nodes > 1 {
			ranks[i] = markerRank(s.nodes[i])
		}
		for j := i; j > 0 && ranks[j] < ranks[j-1]; j-- {
			ranks[j], ranks[j-1] = ranks[j-1], ranks[j]
			s.nodes[j], s.nodes[j-1] = s.nodes[j-1], s.nodes[j]
		}
	}
	return s
}

// ordered numbers the names in n anew, with its writes, if there may be two, in the order that ranks first.
func (n markerNode) ordered(writes int) markerNode {
	if writes < 2 {
		return n.renumber()
	}
	other := n
	other.writes[0], other.writes[1] = n.writes[1], n.writes[0]
	n, other = n.renumber(), other.renumber()
	if markerRank(other) < markerRank(n) {
		return other
	}
	return n
}

var markerSeed = maphash.MakeSeed()

// markerRank is some order; two values that rank the same by chance are just not taken for one.
func markerRank[T comparable](v T) uint64 { return maphash.Comparable(markerSeed, v) }

// unusedRun is a run id that nothing in n mentions, and unusedNonce a nonce.
func (n markerNode) unusedRun() uint8 {
	return unmentioned(n, func(_, run, _ *uint8) *uint8 { return run })
}

func (n markerNode) unusedNonce() uint8 {
	return unmentioned(n, func(_, _, nonce *uint8) *uint8 { return nonce })
}

func unmentioned(n markerNode, pick func(kind, run, nonce *uint8) *uint8) uint8 {
	var used [32]bool
	n.mention(func(v *markerValue) { used[*pick(&v.kind, &v.run, &v.nonce)] = true },
		func(run *uint8) { used[*pick(new(uint8), run, new(uint8))] = true })
	for id := uint8(1); ; id++ {
		if !used[id] {
			return id
		}
	}
}

// mention calls value and run for every place in n that holds a marker or a run id, in a fixed order.
func (n *markerNode) mention(value func(*markerValue), run func(*uint8)) {
	run(&n.run)
	value(&n.marker)
	value(&n.saved)
	for i := range n.writes {
		value(&n.writes[i].from)
		value(&n.writes[i].to)
	}
	for i := range n.views {
		run(&n.views[i].run)
		value(&n.views[i].nonce)
	}
}

// renumber gives run ids and nonces the numbers 1, 2, ... in the order in which n mentions them.
func (n markerNode) renumber() markerNode {
	var runs, nonces [32]uint8
	var lastRun, lastNonce uint8
	number := func(id *uint8, numbers *[32]uint8, last *uint8) {
		if *id == 0 {
			return
		}
		if numbers[*id] == 0 {
			*last++
			numbers[*id] = *last
		}
		*id = numbers[*id]
	}
	run := func(id *uint8) { number(id, &runs, &lastRun) }
	n.mention(func(v *markerValue) { run(&v.run); number(&v.nonce, &nonces, &lastNonce) }, run)
	return n
}

// String is what traces show.
func (s markerState) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %d", s.lock)
	for i, n := range s.nodes {
		if n.run == 0 {
			continue
		}
		fmt.Fprintf(&b, " | node %d: %v up %d", i+1, n.marker, n.uptime)
		if n.key {
			b.WriteString(", key")
		}
		for c, v := range n.views {
			if v.run != 0 {
				fmt.Fprintf(&b, ", %c on run %d watches %v for %d", 'A'+c, v.run, v.nonce, v.watched)
			}
		}
	}
	return b.String()
}

func (v markerValue) String() string {
	kinds := [...]string{"nothing", "nonce", "nonce flagged new", "steady"}
	switch v.kind {
	case markerMissing:
		return kinds[v.kind]
	case markerSteady:
		return fmt.Sprintf("run %d steady", v.run)
	}
	return fmt.Sprintf("run %d %s %d", v.run, kinds[v.kind], v.nonce)
}

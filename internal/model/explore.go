package main

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"
)

// model is a transition system that explore walks through completely, or as far as it is allowed to.
type model[S comparable] interface {
	initial() []S
	// next calls step for every state that can follow s, with the name of what happened.
	next(s S, step func(what string, to S))
	// wrong says which promise s breaks; "" if none.
	wrong(s S) string
}

// symmetric is a model some of whose states differ in names only. canonical picks one of those that do; it must pick
// the same for all that can be reached from each other by renaming, or more states are kept than needed. Only its
// fingerprint is kept: the walk, and so the trace, goes on with the names it has.
type symmetric[S comparable] interface {
	canonical(s S) S
}

// result is what explore found.
type result struct {
	states   int      // different states seen
	depth    int      // steps from the start to the last of them
	complete bool     // every reachable state was seen
	wrong    string   // the promise that was broken; "" if none
	trace    []string // the shortest way to it, step by step, with the state after each
	took     time.Duration
}

// explore walks breadth first, so that the first broken promise comes with a shortest trace. It keeps a 64-bit
// fingerprint of each state and its predecessor's, 16 bytes: of n states about n*n/2^65 are taken for another and
// missed (0.0003 of 10^8). limit bounds the states kept; the walk ends, incomplete, at the first that is one too many.
func explore[S comparable](m model[S], limit int) result {
	began := time.Now()
	seed := maphash.MakeSeed()
	fingerprint := func(s S) uint64 { return maphash.Comparable(seed, s) }
	if m, ok := m.(symmetric[S]); ok {
		fingerprint = func(s S) uint64 { return maphash.Comparable(seed, m.canonical(s)) }
	}
	parent := map[uint64]uint64{}
	var r result
	var frontier, following []S
	full := false
	over := func() bool { return full || r.wrong != "" }
	see := func(from uint64, s S) {
		if over() {
			return
		}
		p := fingerprint(s)
		if _, ok := parent[p]; ok {
			return
		}
		if full = len(parent) >= limit; full {
			return
		}
		parent[p] = from
		following = append(following, s)
		if r.wrong = m.wrong(s); r.wrong != "" {
			r.trace = retrace(m, parent, p, fingerprint)
		}
	}

	for _, s := range m.initial() {
		see(0, s)
	}
	for len(following) > 0 && !over() {
		frontier, following = following, frontier[:0]
		for _, s := range frontier {
			if over() {
				break
			}
			from := fingerprint(s)
			m.next(s, func(_ string, to S) { see(from, to) })
		}
		if len(following) > 0 {
			r.depth++
		}
	}
	r.complete = !over()
	r.states, r.took = len(parent), time.Since(began)
	return r
}

// retrace walks from the start to the state with fingerprint p, and names the steps.
func retrace[S comparable](m model[S], parent map[uint64]uint64, p uint64, fingerprint func(S) uint64) []string {
	path := []uint64{p}
	for parent[p] != 0 {
		p = parent[p]
		path = append(path, p)
	}
	slices.Reverse(path)
	var at S
	for _, s := range m.initial() {
		if fingerprint(s) == path[0] {
			at = s
		}
	}
	steps := []string{fmt.Sprintf("start: %+v", at)}
	for _, want := range path[1:] {
		found := false
		m.next(at, func(what string, to S) {
			if !found && fingerprint(to) == want {
				found = true
				steps = append(steps, fmt.Sprintf("%s: %+v", what, to))
				at = to
			}
		})
	}
	return steps
}

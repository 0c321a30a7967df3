package redlock

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// A fence rises with every new ownership of a resource, over all clients. Each node keeps counters; an acquire proposes
// a number, and every node answers the proposal or, if its counter has reached that, one more:
//
//	node          1     2     3     4     5
//	counter       7     7     7     9     7
//	proposed 8    8     8     8    10     8       K = 3 nodes answered 8: the fence is 8, in the one round trip
//	                                              nodes 1, 3 and 4 alone: the fence is 10, once 1 and 3 are raised to it
//
// A fence m is valid once K nodes carry it: the node's own grant answered at most m, our keys are all there, and every
// counter of theirs is at least m. Any later owner needs K grants, one of them from a node that carries m, which
// answers more. Proposals are the nodes' own time, so that they are nearly always above every counter and the same
// answer comes from everywhere; a wrong one costs a second round trip and breaks nothing.

const (
	stripes  = 1024             // counters of a node; resources share them by hash
	maxFence = uint64(9e15)     // largest number that scripts count exactly, with room to spare
	maxAhead = 10 * 365 * 86400 // seconds by which a counter may be ahead of the nodes' clocks
	fenceLen = 16               // digits, so that counters compare as text
)

// stripeNames are the counters' fields.
var stripeNames = func() (names [stripes]string) {
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}()

// stripesOf lists the counters of resources, each once. All clients must agree on it: FNV-1a, 32 bits, modulo stripes.
func stripesOf(resources []string) []string {
	all := make([]string, 0, len(resources))
	for _, r := range resources {
		h := uint32(2166136261)
		for i := range len(r) {
			h = (h ^ uint32(r[i])) * 16777619
		}
		all = append(all, stripeNames[h%stripes])
	}
	if len(all) > 1 {
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return all
}

// fenceText is f as the counters keep it.
func fenceText(f uint64) string {
	var b [fenceLen]byte
	for i := range b {
		b[fenceLen-1-i] = byte('0' + f%10)
		f /= 10
	}
	return string(b[:])
}

// proposer makes the fences that acquires propose: the nodes' time in microseconds, and above all that this pool has
// seen.
type proposer struct {
	zeros    []*atomic.Int64 // each node's clock, in microseconds, at the pool's epoch; 0 while unknown
	majority int
	top      atomic.Uint64 // highest fence proposed or seen
}

// next is a new proposal at mono; 0, which proposes nothing, while fewer than a majority of clocks have been read.
func (p *proposer) next(mono time.Duration) uint64 {
	now := p.clock(mono)
	if now == 0 {
		return 0
	}
	for {
		top := p.top.Load()
		f := max(now, top+1)
		if f > maxFence {
			return 0
		}
		if p.top.CompareAndSwap(top, f) {
			return f
		}
	}
}

// clock is the median of the nodes' clocks in microseconds since 1970: a minority that is wrong does not move it. 0 if
// unknown.
func (p *proposer) clock(mono time.Duration) uint64 {
	var buf [16]int64
	known := buf[:0]
	for _, zero := range p.zeros {
		if z := zero.Load(); z != 0 {
			known = append(known, z)
		}
	}
	if len(known) < p.majority {
		return 0
	}
	slices.Sort(known)
	return uint64(max(1, known[(len(known)-1)/2]+mono.Microseconds()))
}

// saw notes a fence that a node answered.
func (p *proposer) saw(f uint64) {
	for {
		top := p.top.Load()
		if f <= top || p.top.CompareAndSwap(top, f) {
			return
		}
	}
}

// tooFar says whether an answer is so far ahead of the nodes' clocks that only a broken server can have given it:
// counted, it would use up the numbers for everybody.
func (p *proposer) tooFar(f uint64, mono time.Duration) bool {
	now := p.clock(mono)
	return f > maxFence || now > 0 && f > now+maxAhead*1_000_000
}

package main

import "math/bits"

// fenceModel walks through what can happen to the fences of a few acquisitions of the same resources.
//
// The promise, the strongest that is true although any key may vanish at any moment (so that two clients may well
// both believe they own the resource): two acquisitions that were reported and share a resource, at least one of them
// to write, were both carried by a common node, as each counted a majority. On every such node, whichever was granted
// first there has the smaller fence. So
//   - no two of them ever have the same fence;
//   - all their common nodes agree on their order, and it is the order of the fences;
//   - one that was reported before the first grant that the other counted has the smaller fence, and so has one that
//     ended before the other began: what a store that checks fences relies on.
//
// Why it holds: on a node that carries it, the key of an acquisition stays from its grant there until the node was seen
// to carry fence m, since nothing but the one grant can set it before the report. So on a common node these two spans
// are disjoint; the later grant came after the earlier acquisition's stripes had reached its fence, answered more, and
// counts only if that answer was at most its own fence.
//
// Not promised: the order of the reports. If a key vanishes unseen between a grant that counts and the report, the
// other may be granted, reported and over before; the one reported last then has the smaller fence. A store that
// checks fences refuses its writes, which is safe.
//
// What needs no step of its own:
//   - Clients. An acquisition has its own token, and no memory but its proposal, which here is any small number.
//   - Giving up, a lost reply, a lost raise: the acquisition takes no further step; what it sent may still arrive.
//   - Expiry, eviction, release and undo: a grant may find any key gone, so it simply replaces it. A key that is gone
//     and not replaced only keeps the raise from being confirmed, as a raise that has not arrived does.
//   - A denial: it writes nothing and counts for nothing, so it is a request that has not arrived.
//   - The report: it may follow as soon as K nodes carry the fence; what happens later can only be later.
type fenceModel struct {
	nodes    int
	wants    []uint8             // of each acquisition: its resources, one bit each
	reads    uint8               // acquisitions that only read, one bit each
	stripeOf [fenceResources]int // of each resource
	propose  uint8               // each acquisition proposes 0 (none) up to this
	losses   uint8               // how often a node may lose all it knows, in all
	blank    bool                // it loses all; else it may also keep old keys, or everything
	resends  uint8               // acquisitions whose acquire may reach a node twice, one bit each
	rule     fenceRule           // what the protocol does differently
	unique   bool                // ask only whether two owners have one fence

	renamings []fenceRenaming // set by newFence
}

const (
	fenceResources = 2
	fenceStripes   = 2
	fenceNodes     = 5
	fenceTries     = 3  // acquisitions
	fenceMost      = 15 // a node refuses, before writing, to answer more
)

// fenceRule is a set of deviations from the protocol.
type fenceRule uint32

const (
	fenceRaiseNotOurs     fenceRule = 1 << iota // a raise is confirmed although our keys are not there
	fenceRaiseUncounted                         // a raise writes although our keys are not there, and is not confirmed
	fenceRaiseOneKey                            // a raise looks at the first of our keys only
	fenceRaiseThenCheck                         // a raise is two commands: it writes, and looks at our keys later
	fenceCheckThenRaise                         // the same the other way round
	fenceRaiseOneStripe                         // a raise raises the first of our stripes only
	fenceCountAbove                             // a raise is confirmed also where the grant answered more than m
	fenceRefillEarly                            // refills may be sent before the lock is reported
	fenceRefillCounts                           // and such a refill is counted as carrying
	fenceRefillSpends                           // and the grant of a node that was sent one is not counted any more
	fenceUnstored                               // the answer may never be stored
	fenceStoredLater                            // the answer is stored by a second command
	fenceNoRaise                                // K grants that answered at most m are enough
	fenceSmallest                               // the fence is the smallest of K answers
	fenceOnlyEqual                              // no raise is ever sent: only K equal answers make a lock
	fenceDieAfterSet                            // SET comes first, and the script may fail between it and the counter
	fenceResendIncrements                       // a resend that finds its key there increments
	fenceSilentCopy                             // the other copy of an acquire may arrive after one was counted
	fenceCopyNeedsM                             // a node that was sent two copies is counted only if it answered m
	fenceResendOneKey                           // a resend looks at the first of our keys only
	fenceUnsteadyVotes                          // nodes that forgot grant and confirm at once
	fenceUnsteadyWrites                         // nodes that forgot write what they are asked, but have no vote
	fenceReadersShare                           // a reader that finds another does not increment
	fenceHealBefore                             // the stripes may be read before the node forgot
	fenceHealFew                                // the stripes are read on one node less than a majority
	fenceHealUnread                             // nothing is read or raised
	fenceHealUnguarded                          // the stripes are read without waiting for the guard
	fenceHealOtherRun                           // the swap does not compare the nonce
	fenceHealFromUnsteady                       // the stripes are read on nodes that forgot, too
	fenceHealAlone                              // where no majority is steady, nothing is read
)

func (m *fenceModel) breaks(r fenceRule) bool { return m.rule&r != 0 }

// copies says how often the acquire of i may reach a node.
func (m *fenceModel) copies(i int) uint8 { return 1 + m.resends>>i&1 }

// majority is K.
func (m *fenceModel) majority() int { return m.nodes/2 + 1 }

// fenceState is everything that matters for what can happen next.
type fenceState struct {
	node     [fenceNodes]fenceNode
	fence    [fenceTries]uint8 // m of each acquisition, once it has decided
	proposal [fenceTries]uint8
	dead     uint8 // acquisitions whose time ran out before they were reported
	losses   uint8 // still to come
}

// fenceNode is one node, and what the acquisitions have to do with it.
type fenceNode struct {
	key   [fenceResources]uint8 // whose it is: one acquisition, or several readers
	count [fenceStripes]uint8

	left    [fenceTries]uint8 // copies of the acquire that may still arrive
	answer  [fenceTries]uint8 // what the grant answered that the client may count; 0: none
	store   [fenceTries]uint8 // the answer that has yet to be stored
	half    uint8             // acquisitions of whose raise the first of two commands was done
	earlier [fenceTries]uint8 // which acquisitions' counted grants came before this one's
	carries uint8             // acquisitions whose fence the node is known to carry

	unsteady bool
	pending  uint8               // not yet reported when the node forgot: dead when the guard is over
	read     uint8               // nodes whose stripes were read for healing this one
	most     [fenceStripes]uint8 // the largest stripes read
}

func (m *fenceModel) initial() []fenceState {
	var s fenceState
	s.losses = m.losses
	for n := range m.nodes {
		for i := range m.wants {
			s.node[n].left[i] = m.copies(i)
		}
	}
	all := []fenceState{s}
	for i := range m.wants {
		for _, s := range all[:len(all):len(all)] {
			for s.proposal[i] = 1; s.proposal[i] <= m.propose; s.proposal[i]++ {
				all = append(all, s)
			}
		}
	}
	return all
}

// wrong compares each two acquisitions that share a resource and may both have been reported.
func (m *fenceModel) wrong(s fenceState) string {
	for i := range m.wants {
		for j := range i {
			if m.wants[i]&m.wants[j] == 0 || m.reader(i) && m.reader(j) || !m.reported(&s, i) || !m.reported(&s, j) {
				continue
			}
			if s.fence[i] == s.fence[j] {
				return "two owners have one fence"
			}
			for n := range m.nodes {
				at := &s.node[n]
				if m.unique || !at.has(i) || !at.has(j) || (at.earlier[i]|at.earlier[j])&(1<<i|1<<j) == 0 {
					continue
				}
				if (s.fence[i] < s.fence[j]) != (at.earlier[j]&(1<<i) != 0) {
					return "the fences are not in the order in which a node that both count granted them"
				}
			}
		}
	}
	return ""
}

// reported says whether acquisition i can have been reported.
func (m *fenceModel) reported(s *fenceState, i int) bool {
	if s.fence[i] == 0 || s.dead&(1<<i) != 0 {
		return false
	}
	carriers := 0
	for n := range m.nodes {
		if s.node[n].has(i) {
			carriers++
		}
	}
	return carriers >= m.majority()
}

// has says whether the node is known to carry the fence of acquisition i.
func (at *fenceNode) has(i int) bool { return at.carries&(1<<i) != 0 }

// reader says whether acquisition i is shared with others that read.
func (m *fenceModel) reader(i int) bool { return m.reads&(1<<i) != 0 }

// found says whether the keys of acquisition i are all there, or the first of them is.
func (m *fenceModel) found(at *fenceNode, i int, firstOnly bool) bool {
	wants := m.wants[i]
	if firstOnly {
		wants = lowestBit(wants)
	}
	for r := range fenceResources {
		if wants&(1<<r) != 0 && at.key[r]&(1<<i) == 0 {
			return false
		}
	}
	return true
}

// take sets the keys of acquisition i: a reader joins readers, anybody else finds the key gone.
func (m *fenceModel) take(at *fenceNode, i int) {
	for r := range fenceResources {
		switch {
		case m.wants[i]&(1<<r) == 0:
		case m.reader(i) && at.key[r]&^m.reads == 0:
			at.key[r] |= 1 << i
		default:
			at.key[r] = 1 << i
		}
	}
}

// stripes says which stripes acquisition i uses, one bit each.
func (m *fenceModel) stripes(i int) (set uint8) {
	for r := range fenceResources {
		if m.wants[i]&(1<<r) != 0 {
			set |= 1 << m.stripeOf[r]
		}
	}
	return set
}

// raise makes the stripes in set at least v.
func (at *fenceNode) raise(set, v uint8) {
	for x := range fenceStripes {
		if set&(1<<x) != 0 {
			at.count[x] = max(at.count[x], v)
		}
	}
}

// highest returns the largest of the stripes in set.
func (at *fenceNode) highest(set uint8) (v uint8) {
	for x := range fenceStripes {
		if set&(1<<x) != 0 {
			v = max(v, at.count[x])
		}
	}
	return v
}

// lowestBit returns set with only its lowest bit.
func lowestBit(set uint8) uint8 { return 1 << bits.TrailingZeros8(set) }

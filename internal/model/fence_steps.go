package main

import "fmt"

// fenceStep is called with each state that can follow.
type fenceStep = func(what string, to fenceState)

// next lists everything that can happen: to each acquisition on each node, and to each node.
func (m *fenceModel) next(s fenceState, step fenceStep) {
	settled := func(what string, to fenceState) {
		m.settle(&to)
		step(what, to)
	}
	for i := range m.wants {
		if s.fence[i] == 0 && s.dead&(1<<i) == 0 {
			m.decide(s, i, settled)
		}
		reported := m.reported(&s, i)
		for n := range m.nodes {
			m.acquire(s, i, n, settled)
			m.store(s, i, n, settled)
			if reported || s.fence[i] != 0 && m.breaks(fenceRefillEarly|fenceRefillCounts) {
				m.refill(s, i, n, settled)
			}
			if !reported && s.fence[i] != 0 {
				m.confirm(s, i, n, settled)
			}
		}
	}
	for n := range m.nodes {
		m.lose(s, n, settled)
		m.survey(s, n, settled)
		m.heal(s, n, settled)
	}
}

// settle forgets what no longer matters once an acquisition was reported, or died before it decided: what its grants
// answered, and the order of those that do not carry its fence. It changes no answer of wrong, and leaves fewer states.
func (m *fenceModel) settle(s *fenceState) {
	for i := range m.wants {
		reported := m.reported(s, i)
		if !reported && (s.dead&(1<<i) == 0 || s.fence[i] != 0) {
			continue
		}
		for n := range m.nodes {
			at := &s.node[n]
			at.answer[i] = 0
			if reported && at.has(i) {
				continue
			}
			at.earlier[i] = 0
			for j := range m.wants {
				at.earlier[j] &^= 1 << i
			}
		}
	}
}

// acquire is one copy of the acquire of i at n: the keys of others have vanished, or it would be denied.
func (m *fenceModel) acquire(s fenceState, i, n int, step fenceStep) {
	at := s.node[n]
	if at.left[i] == 0 || at.unsteady && !m.breaks(fenceUnsteadyVotes|fenceUnsteadyWrites) {
		return
	}
	at.left[i]--
	stripes := m.stripes(i)
	fresh, again := max(s.proposal[i], at.highest(stripes)+1), max(s.proposal[i], at.highest(stripes))
	if fresh > fenceMost {
		return
	}
	taken := at
	m.take(&taken, i)
	if m.found(&at, i, m.breaks(fenceResendOneKey)) { // a resend finds the key still there
		if m.breaks(fenceResendIncrements) {
			again = fresh
		}
		m.grant(s, i, n, taken, again, true, "is asked again by", step)
	} else if m.breaks(fenceReadersShare) && m.reader(i) && at.key[0]&m.reads != 0 {
		m.grant(s, i, n, taken, again, true, "lets in", step)
	}
	if m.breaks(fenceReadersShare) && m.reader(i) { // the other readers have vanished, too
		taken.key[0] = 1 << i
	}
	m.grant(s, i, n, taken, fresh, true, "grants", step)
	if m.breaks(fenceUnstored) {
		m.grant(s, i, n, taken, fresh, false, "grants, storing nothing,", step)
	}
	if m.breaks(fenceStoredLater) {
		later := taken
		later.store[i] = fresh
		m.grant(s, i, n, later, fresh, false, "grants, storing nothing yet,", step)
	}
	if m.breaks(fenceDieAfterSet) {
		step(fmt.Sprintf("n%d sets the key of %s, and fails before the counter", n, fenceName(i)), s.with(n, taken))
	}
}

// grant is a node's answer: it is counted, or its reply is lost.
func (m *fenceModel) grant(s fenceState, i, n int, at fenceNode, answer uint8, store bool, what string, step fenceStep) {
	what = fmt.Sprintf("n%d %s %s: %d", n, what, fenceName(i), answer)
	if store {
		at.raise(m.stripes(i), answer)
	}
	if at.unsteady && !m.breaks(fenceUnsteadyVotes) || m.reported(&s, i) || s.dead&(1<<i) != 0 || at.answer[i] != 0 {
		step(what+", which nobody counts", s.with(n, at))
		return
	}
	if at.left[i] > 0 {
		step(what+", but the reply is lost", s.with(n, at))
	}
	if !m.breaks(fenceSilentCopy) {
		at.left[i] = 0
	}
	at.answer[i] = answer
	at.earlier[i] = 0
	for j := range m.wants {
		// Of those that were reported only the carriers still matter: see settle.
		if j != i && (at.answer[j] != 0 || m.reported(&s, j) && at.has(j)) {
			at.earlier[i] |= 1 << j
		}
	}
	if m.counts(&at, i, s.fence[i]) {
		at.carries |= 1 << i
	}
	step(what, s.with(n, at))
}

// counts says whether the node carries fence v of acquisition i by its grant alone.
func (m *fenceModel) counts(at *fenceNode, i int, v uint8) bool {
	a := at.answer[i]
	switch {
	case a == 0 || v == 0:
		return false
	case m.breaks(fenceNoRaise):
		return a <= v
	case m.breaks(fenceSmallest):
		return a >= v
	}
	return a == v
}

// store is the second command of an acquire, where that writes the counter.
func (m *fenceModel) store(s fenceState, i, n int, step fenceStep) {
	at := s.node[n]
	if at.store[i] == 0 {
		return
	}
	at.raise(m.stripes(i), at.store[i])
	at.store[i] = 0
	step(fmt.Sprintf("n%d stores the counter of %s", n, fenceName(i)), s.with(n, at))
}

// decide fixes the fence: the K-th smallest answer among any K or more grants that the client knows by now.
func (m *fenceModel) decide(s fenceState, i int, step fenceStep) {
	var done uint16
	for n := range m.nodes {
		v := s.node[n].answer[i]
		if v == 0 || done&(1<<v) != 0 {
			continue
		}
		done |= 1 << v
		enough := 0
		for k := range m.nodes {
			a := s.node[k].answer[i]
			if a != 0 && (a <= v && !m.breaks(fenceSmallest) || a >= v && m.breaks(fenceSmallest)) {
				enough++
			}
		}
		if enough < m.majority() {
			continue
		}
		to := s
		to.fence[i] = v
		for k := range m.nodes {
			if m.counts(&to.node[k], i, v) {
				to.node[k].carries |= 1 << i
			}
		}
		step(fmt.Sprintf("%s decides on fence %d", fenceName(i), v), to)
	}
}

// confirm is the raise: if our keys are there, every stripe is made at least the fence, and the node carries it.
func (m *fenceModel) confirm(s fenceState, i, n int, step fenceStep) {
	at := s.node[n]
	switch {
	case m.breaks(fenceOnlyEqual), at.has(i), at.unsteady && !m.breaks(fenceUnsteadyVotes),
		at.answer[i] == 0, at.answer[i] > s.fence[i] && !m.breaks(fenceCountAbove),
		m.breaks(fenceCopyNeedsM) && m.copies(i) > 1:
		return
	}
	ours := m.found(&at, i, m.breaks(fenceRaiseOneKey))
	stripes := m.stripes(i)
	if m.breaks(fenceRaiseOneStripe) {
		stripes = lowestBit(stripes)
	}
	if m.breaks(fenceRaiseThenCheck|fenceCheckThenRaise) && at.half&(1<<i) == 0 {
		at.half |= 1 << i
		if m.breaks(fenceRaiseThenCheck) {
			at.raise(stripes, s.fence[i])
			step(fmt.Sprintf("n%d raises to %d for %s", n, s.fence[i], fenceName(i)), s.with(n, at))
		} else if ours {
			step(fmt.Sprintf("n%d still has the key of %s", n, fenceName(i)), s.with(n, at))
		}
		return
	}
	if !m.breaks(fenceRaiseThenCheck) {
		at.raise(stripes, s.fence[i])
	}
	if ours || m.breaks(fenceRaiseNotOurs|fenceCheckThenRaise) {
		at.carries |= 1 << i
		step(fmt.Sprintf("n%d confirms %s's raise to %d", n, fenceName(i), s.fence[i]), s.with(n, at))
	} else if m.breaks(fenceRaiseUncounted) {
		step(fmt.Sprintf("n%d raises to %d, though %s's key is gone", n, s.fence[i], fenceName(i)), s.with(n, at))
	}
}

// refill gives the key of a lock that was reported to a node that lost it (or never had it), or renews it; it may come
// after the lock has ended. Steady or not, it is no vote.
func (m *fenceModel) refill(s fenceState, i, n int, step fenceStep) {
	at := s.node[n]
	m.take(&at, i)
	at.raise(m.stripes(i), s.fence[i])
	if m.breaks(fenceRefillCounts) && !m.reported(&s, i) {
		at.carries |= 1 << i
	}
	if m.breaks(fenceRefillSpends) && !m.reported(&s, i) && !at.has(i) {
		at.answer[i], at.left[i] = 0, 0
	}
	if at != s.node[n] {
		step(fmt.Sprintf("n%d is refilled by %s", n, fenceName(i)), s.with(n, at))
	}
}

func (s fenceState) with(n int, at fenceNode) fenceState {
	s.node[n] = at
	return s
}

func fenceName(i int) string { return string(rune('A' + i)) }

package main

import (
	"fmt"
	"math/bits"
)

// lose is a restart, a FLUSHALL or an old snapshot: keys, counters or both may be gone, and the marker shows it.
func (m *fenceModel) lose(s fenceState, n int, step fenceStep) {
	if s.losses == 0 {
		return
	}
	s.losses--
	at := s.node[n]
	at.unsteady = true
	at.pending = 0
	for i := range m.wants {
		if m.began(&s, i) && !m.reported(&s, i) {
			at.pending |= 1 << i
		}
	}
	if !m.breaks(fenceHealBefore | fenceHealOtherRun) {
		at.read, at.most = 0, [fenceStripes]uint8{} // the nonce of the new run fails the swap of what was read before
	}
	if !m.blank {
		step(fmt.Sprintf("n%d restarts with all its data", n), s.with(n, at))
		at.count = [fenceStripes]uint8{}
		step(fmt.Sprintf("n%d restarts with old counters", n), s.with(n, at))
	}
	at.key, at.count = [fenceResources]uint8{}, [fenceStripes]uint8{}
	step(fmt.Sprintf("n%d forgets all", n), s.with(n, at))
}

// began says whether acquisition i has reached any node. One that has not may as well have been sent later.
func (m *fenceModel) began(s *fenceState, i int) bool {
	for n := range m.nodes {
		if s.node[n].left[i] < m.copies(i) {
			return true
		}
	}
	return false
}

// survey reads the stripes of one steady node, in order to heal n. The guard has passed by the first of them: what had
// begun before n forgot has been reported or has run out. The reads are as far apart as they like.
func (m *fenceModel) survey(s fenceState, n int, step fenceStep) {
	if m.losses == 0 || !s.node[n].unsteady && !(m.breaks(fenceHealBefore) && s.losses > 0) {
		return
	}
	for k := range m.nodes {
		at := s.node[n]
		if k == n || at.read&(1<<k) != 0 || s.node[k].unsteady && !m.breaks(fenceHealFromUnsteady) {
			continue
		}
		to := s
		if at.unsteady && !m.breaks(fenceHealUnguarded) {
			m.guard(&to, n)
			at.pending = 0
		}
		at.read |= 1 << k
		for x := range fenceStripes {
			at.most[x] = max(at.most[x], s.node[k].count[x])
		}
		step(fmt.Sprintf("n%d's stripes are read to heal n%d", k, n), to.with(n, at))
	}
}

// heal raises the stripes to what was read and swaps the nonce for steady; it may come long after the survey, as long
// as the node has not forgotten again.
//
// Why an old survey does no harm: what was reported before it is carried by one of the nodes read, as these are K and
// at most N-K others ever were steady without carrying it; what is reported later does not count this node, which had
// no vote, and whose grants from before it forgot died with the guard.
func (m *fenceModel) heal(s fenceState, n int, step fenceStep) {
	at := s.node[n]
	need := m.majority()
	if m.breaks(fenceHealFew) {
		need--
	}
	if m.breaks(fenceHealUnread) || m.breaks(fenceHealAlone) && m.steady(&s) < m.majority() {
		need = 0
	}
	if !at.unsteady || bits.OnesCount8(at.read) < need {
		return
	}
	if !m.breaks(fenceHealUnguarded | fenceHealOtherRun) {
		m.guard(&s, n)
	}
	for x := range fenceStripes {
		at.count[x] = max(at.count[x], at.most[x])
	}
	at.unsteady, at.pending = false, 0
	if !m.breaks(fenceHealOtherRun) { // or else another healer may have read the same, and come later
		at.read, at.most = 0, [fenceStripes]uint8{}
	}
	step(fmt.Sprintf("n%d is healed", n), s.with(n, at))
}

// guard ends what had begun before n forgot and was not reported since.
func (m *fenceModel) guard(s *fenceState, n int) {
	for i := range m.wants {
		if s.node[n].pending&(1<<i) != 0 && !m.reported(s, i) {
			s.dead |= 1 << i
		}
	}
	s.node[n].pending = 0
}

func (m *fenceModel) steady(s *fenceState) (count int) {
	for n := range m.nodes {
		if !s.node[n].unsteady {
			count++
		}
	}
	return count
}

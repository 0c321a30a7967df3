package main

import (
	"cmp"
	"slices"
)

// canonical returns one of the states that differ from s only in how the nodes are numbered, and in how acquisitions
// that want the same are named: what can follow from these is the same but for the names, so one of them is enough.
func (m *fenceModel) canonical(s fenceState) fenceState {
	if len(m.renamings) == 1 {
		return m.sorted(s)
	}
	var looks [fenceTries]uint64
	for i := range m.wants {
		looks[i] = m.looks(&s, i)
	}
	var best fenceState
	var least [2*fenceNodes + 2]uint64
	found := false
	for i := range m.renamings {
		names := &m.renamings[i]
		if !m.inOrder(&looks, &names.to) {
			continue
		}
		t := m.sorted(names.of(&s))
		if r := m.rank(&t); !found || slices.Compare(r[:], least[:]) < 0 {
			best, least, found = t, r, true
		}
	}
	return best
}

// looks sums up acquisition i in a number that depends on no name.
func (m *fenceModel) looks(s *fenceState, i int) uint64 {
	sum := uint64(s.fence[i])<<8 | uint64(s.proposal[i])<<4 | uint64(s.dead>>i&1)
	for n := range m.nodes {
		at := &s.node[n]
		v := uint64(at.answer[i])<<8 | uint64(at.left[i])<<4 | uint64(at.carries>>i&1)<<2 | uint64(at.pending>>i&1)<<1
		for _, k := range at.key {
			v = v<<1 | uint64(k>>i&1)
		}
		sum += (v + 1) * (v + 0x9e3779b97f4a7c15) << 16
	}
	return sum
}

// inOrder says whether to names the acquisitions that want the same in the order of their looks, which saves trying
// the other names.
func (m *fenceModel) inOrder(looks *[fenceTries]uint64, to *[fenceTries]int) bool {
	for i := range m.wants {
		for j := range m.wants {
			if m.alike(i, j) && looks[i] < looks[j] && to[i] > to[j] {
				return false
			}
		}
	}
	return true
}

// fenceRenaming calls acquisition i to[i], and the set of acquisitions x set[x].
type fenceRenaming struct {
	to  [fenceTries]int
	set [1 << fenceTries]uint8
}

// newFence fills in what follows from the rest: the renamings of acquisitions that want the same.
func newFence(m fenceModel) *fenceModel {
	var choose func(to [fenceTries]int, i int)
	choose = func(to [fenceTries]int, i int) {
		if i == len(m.wants) {
			m.renamings = append(m.renamings, newFenceRenaming(to))
			return
		}
		for j := i; j < len(m.wants); j++ {
			if m.alike(i, j) {
				other := to
				other[i], other[j] = to[j], to[i]
				choose(other, i+1)
			}
		}
	}
	choose([fenceTries]int{0, 1, 2}, 0)
	return &m
}

func newFenceRenaming(to [fenceTries]int) fenceRenaming {
	r := fenceRenaming{to: to}
	for x := range r.set {
		for i, j := range to {
			r.set[x] |= uint8(x >> i & 1 << j)
		}
	}
	return r
}

// alike says whether acquisitions i and j want the same.
func (m *fenceModel) alike(i, j int) bool {
	return m.wants[i] == m.wants[j] && m.reader(i) == m.reader(j) && m.copies(i) == m.copies(j)
}

// of returns s with the other names.
func (r *fenceRenaming) of(s *fenceState) fenceState {
	t := *s
	for n := range s.node {
		from, at := &s.node[n], &t.node[n]
		for k, holders := range from.key {
			at.key[k] = r.set[holders]
		}
		for i, j := range r.to {
			at.left[j], at.answer[j], at.store[j] = from.left[i], from.answer[i], from.store[i]
			at.earlier[j] = r.set[from.earlier[i]]
		}
		at.carries, at.pending, at.half = r.set[from.carries], r.set[from.pending], r.set[from.half]
	}
	for i, j := range r.to {
		t.fence[j], t.proposal[j] = s.fence[i], s.proposal[i]
	}
	t.dead = r.set[s.dead]
	return t
}

// sorted puts the nodes in an order that does not depend on their numbers.
func (m *fenceModel) sorted(s fenceState) fenceState {
	type place struct {
		rank [2]uint64
		was  int
	}
	var places [fenceNodes]place
	for n := range m.nodes {
		places[n] = place{s.node[n].rank(), n}
	}
	slices.SortFunc(places[:m.nodes], func(a, b place) int {
		return cmp.Or(slices.Compare(a.rank[:], b.rank[:]), cmp.Compare(a.was, b.was))
	})
	t := s
	for now, p := range places[:m.nodes] {
		t.node[now] = s.node[p.was]
		t.node[now].read = 0
		for k, q := range places[:m.nodes] {
			t.node[now].read |= s.node[p.was].read >> q.was & 1 << k
		}
	}
	return t
}

// rank packs all of a node but which others were read for it, which depends on their numbers.
func (at *fenceNode) rank() (r [2]uint64) {
	put := func(word int, v uint8, width int) { r[word] = r[word]<<width | uint64(v) }
	for i := range fenceTries {
		put(0, at.answer[i], 4)
		put(0, at.store[i], 4)
		put(0, at.earlier[i], fenceTries)
		put(0, at.left[i], 2)
		put(0, at.carries>>i&1, 1)
		put(0, at.pending>>i&1, 1)
		put(1, at.half>>i&1, 1)
	}
	for x := range fenceStripes {
		put(1, at.count[x], 4)
		put(1, at.most[x], 4)
	}
	for k := range fenceResources {
		put(1, at.key[k], fenceTries)
	}
	if at.unsteady {
		put(1, 1, 1)
	} else {
		put(1, 0, 1)
	}
	return r
}

// rank orders whole states.
func (m *fenceModel) rank(s *fenceState) (r [2*fenceNodes + 2]uint64) {
	for n := range m.nodes {
		at := s.node[n].rank()
		r[2*n], r[2*n+1] = at[0], at[1]<<fenceNodes|uint64(s.node[n].read)
	}
	for i := range fenceTries {
		r[2*fenceNodes] = r[2*fenceNodes]<<8 | uint64(s.fence[i])
		r[2*fenceNodes+1] = r[2*fenceNodes+1]<<8 | uint64(s.proposal[i])
	}
	r[2*fenceNodes] = r[2*fenceNodes]<<fenceTries | uint64(s.dead)
	return r
}

package sim

import (
	"strconv"
	"time"
)

// What nodes have said, against what callers were told. A rule that is broken here is broken before two owners happen to
// meet: most of the time nobody is there to take what has become free.

// votes are what one node has said for a token.
type votes struct {
	until   time.Duration // the last that counts was for so long
	answer  uint64        // lowest fence that it granted with
	carries uint64        // highest fence that all counters of its keys had reached while it was there
}

// voted notes a vote. One that is cast less than a guard after the node may have forgotten vouches for nothing, whatever
// the node's marker said. The server's mutex is held.
func (n *node) voted(token string, stripes []string, ttl time.Duration, fence uint64) {
	v := n.votes[token]
	if v == nil {
		v = &votes{}
		n.votes[token] = v
	}
	now := n.w.now()
	if now-n.lapsed >= n.w.plan.TTL {
		v.until = max(v.until, now+ttl)
	}
	if fence > 0 && (v.answer == 0 || fence < v.answer) {
		v.answer = fence
	}
	lowest := n.counter(stripes[0])
	for _, s := range stripes[1:] {
		lowest = min(lowest, n.counter(s))
	}
	v.carries = max(v.carries, lowest)
}

// released notes that a node's votes for a token are taken back. The server's mutex is held.
func (n *node) released(token string) {
	if v := n.votes[token]; v != nil {
		v.until = 0
	}
}

// lapse notes that the node may have forgotten keys, in a way that its clients can see. One that never voted had none.
func (n *node) lapse() {
	n.Do(func() {
		if len(n.votes) > 0 {
			n.lapsed = n.w.now()
		}
	})
}

// counter is the fence that a counter has reached. The server's mutex must be held.
func (n *node) counter(stripe string) uint64 {
	c, _ := strconv.ParseUint(n.Fields[stripe], 10, 64)
	return c
}

// said is what the node has said for a token.
func (n *node) said(token string) (v votes) {
	n.Do(func() {
		if known := n.votes[token]; known != nil {
			v = *known
		}
	})
	return v
}

// vouched checks that a majority has, within the TTL, granted a lock that is valid, or found it still there, on nodes that
// had not forgotten a lock that had not run out. To be set again where it was missing is not enough.
func (k *checker) vouched(h *hold, now time.Time) {
	if !h.valid(now) {
		return
	}
	vouch := 0
	for _, n := range k.w.nodes {
		if n.said(h.Token()).until > k.w.now() {
			vouch++
		}
	}
	if vouch < k.w.plan.Nodes/2+1 {
		k.violate(ruleVouched, "%v, by %d nodes", h, vouch)
	}
}

// carried checks that K nodes carry the fence of a lock that is handed out: each granted it with no higher one, and had its
// counters at least there while it held the keys. Who comes later gets a vote from one of them.
func (k *checker) carried(h *hold) {
	carry := 0
	for _, n := range k.w.nodes {
		if v := n.said(h.Token()); v.answer > 0 && v.answer <= h.fence && v.carries >= h.fence {
			carry++
		}
	}
	if carry < k.w.plan.Need {
		k.violate(ruleCarried, "%v, carried by %d nodes", h, carry)
	}
}

// kept checks that whoever comes next gets a higher fence than the last owner has: of the nodes that would vote, at most
// N - K have lower counters.
func (k *checker) kept() {
	if k.loose {
		return
	}
	lower := map[string]int{}
	for _, n := range k.w.nodes {
		if !n.steady() {
			continue
		}
		n.Do(func() {
			for r, h := range k.last {
				if n.counter(strconv.Itoa(int(stripe(r)))) < h.fence {
					lower[r]++
				}
			}
		})
	}
	for r, nodes := range lower {
		if nodes > k.w.plan.spare() {
			k.violate(ruleKept, "%q: %d nodes have lower counters than %v", r, nodes, k.last[r])
		}
	}
}

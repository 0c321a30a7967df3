package redlock

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"sync"
	"time"
)

// terms are what a lock was asked for.
type terms struct {
	ttl         time.Duration
	validity    time.Duration // of one confirmation: ttl less the drift allowance
	nodeTimeout time.Duration
	maxHold     time.Duration // 0: no limit
	lease       bool          // the ttl is a fixed lease: no renewals
	fair        bool          // its turn comes in the order of arrival
	label       string
}

// wish is what a call wants to lock.
type wish struct {
	terms
	resources, keys []string
}

// hold is one acquisition: a token, what each node said about it, and until when that proves ownership.
//
//	asking --(K grants, time left)--> held --(Unlock, deadline, not ours)--> dead
//	   \--(anything else)---------------------------------------------------> dead
//
// Once it is dead nothing is written for its token but releases.
type hold struct {
	terms
	resources []string // set by newHold, then read-only, like the others of this group
	keys      []string
	token     string
	stripes   []string // the counters of the resources

	ticket *ticket // of its call in the fair queues, nil if it had none; set before others know the hold, then read-only

	fence     uint64 // the proposal, 0 for none; set to what K nodes carry before the lock is held, then read-only
	fenceText string // the same, as scripts want it

	mu       sync.Mutex // guards the fields below
	phase    phase
	began    instant // start of the acquire round; the earliest moment at which a node may count from
	from     instant // the deadline is from + validity
	nodes    []standing
	failure  error       // the last renewal that reached no majority, for the cause of a loss
	err      error       // why it is dead
	ended    func(error) // called once, after death, without mu
	released bool        // K nodes are known to be free of the token
	owned    bool        // it has been held, and nobody has been told yet that it ended
	heard    bool        // every node has answered the acquire
	missing  int         // how many nodes did not hold it when that was last told
}

type phase uint8

const (
	asking phase = iota
	held
	dead
)

// standing is what one node last said about a hold.
type standing struct {
	at    instant // start of the round in which it confirmed the key or set it again; zero if it never did
	has   bool    // it holds our keys, from at on, for a TTL
	votes bool    // its confirmation counts for the deadline: it did not forget the key in between
	asked bool    // it was sent something that may create the key, and what it said since does not rule that out
	took  bool    // it held our keys at some time
	doubt bool    // one of those was never answered and may be applied yet, whatever it says now
	open  int     // how many of those have not been answered

	answer uint64 // the fence that it gave with its grant; 0 before
}

func newHold(t terms, resources, keys []string, token string, nodes int, began instant) *hold {
	return &hold{terms: t, resources: resources, keys: keys, token: token, stripes: stripesOf(resources),
		began: began, from: began, nodes: make([]standing, nodes)}
}

// setFence notes the proposal, and later the fence. h.mu must be held once the hold is known to others.
func (h *hold) setFence(f uint64) {
	if h.fence != f || h.fenceText == "" {
		h.fence, h.fenceText = f, fenceText(f)
	}
}

// lowestFence is the smallest fence that need of the nodes which grant can carry: none of them answered more. h.mu must
// be held, and as many must have granted.
func (h *hold) lowestFence(need int) uint64 {
	var buf [16]uint64
	answers := buf[:0]
	for _, s := range h.nodes {
		if s.has && s.answer > 0 {
			answers = append(answers, s.answer)
		}
	}
	slices.Sort(answers)
	return answers[need-1]
}

// mayCarry says whether a node that holds the keys, with counters raised to the fence, carries it: its own grant must
// not have answered more, and no copy of the request may still be applied there: it could set the keys again after they
// were lost and granted to another. h.mu must be held.
func (h *hold) mayCarry(node int) bool {
	s := h.nodes[node]
	return s.answer > 0 && s.answer <= h.fence && !s.doubt
}

// carriers counts the nodes that answered the fence itself. h.mu must be held.
func (h *hold) carriers() int {
	c := 0
	for _, s := range h.nodes {
		if s.has && s.answer == h.fence {
			c++
		}
	}
	return c
}

// left is how long the hold proves ownership from now on; zero or less means that it does not. h.mu must be held.
func (h *hold) left(now instant) time.Duration {
	left := remaining(h.validity, h.from, now)
	if h.maxHold > 0 {
		left = min(left, remaining(h.maxHold, h.began, now))
	}
	return left
}

// sent notes that a request which may create the keys is leaving for a node. h.mu must be held.
func (h *hold) sent(node int) {
	h.nodes[node].asked = true
	h.nodes[node].open++
}

// apply notes a node's answer to an acquire or renew; doubtful if a copy of it may be applied yet. A grant holds for a
// TTL from start, at least. h.mu must be held.
func (h *hold) apply(node int, v vote, start instant, doubtful bool) {
	s := &h.nodes[node]
	s.doubt = s.doubt || doubtful
	switch v.kind {
	case voteGrant:
		if s.asked, s.took = true, true; !s.has || s.at.mono <= start.mono {
			s.at, s.has, s.votes = start, true, true
		}
		if h.phase == asking {
			s.answer = max(s.answer, v.fence)
		}
	case voteRefill:
		s.at, s.has, s.votes, s.asked, s.took = start, true, false, true, true
	case voteDenied: // one key is another's; others that it took before may still be ours
		s.has, s.votes, s.asked = false, false, s.doubt || s.open > 0 || s.took && len(h.keys) > 1
	// Late: nothing was written, and what it holds from before counts for as long as that lasts.
	case voteUnsteady: // nor was anything taken away that it was given before
		s.has, s.votes, s.asked = false, false, s.doubt || s.open > 0 || s.took
	case voteUnsteadyOurs: // no vote, and nothing for the margin: it may have forgotten another's lock
		s.has, s.votes, s.asked, s.took = false, false, true, true
	}
}

// advance moves the deadline to the majority-th latest confirmation, only ever forward, and not at all once it has
// passed by the clock, which is read only if there is something to move. h.mu must be held.
func (h *hold) advance(majority int, now func() instant) {
	var buf [16]instant
	confirmed := buf[:0]
	for _, s := range h.nodes {
		if s.votes {
			confirmed = append(confirmed, s.at)
		}
	}
	if len(confirmed) < majority {
		return
	}
	slices.SortFunc(confirmed, func(a, b instant) int { return cmp.Compare(b.mono, a.mono) })
	if at := confirmed[majority-1]; at.mono > h.from.mono && h.left(now()) > 0 {
		h.from = at
	}
}

// holding counts the steady nodes that hold our keys at now. h.mu must be held.
func (h *hold) holding(now instant, isSteady func(node int) bool) int {
	g := 0
	for i, s := range h.nodes {
		if s.has && elapsed(s.at, now) < h.ttl && isSteady(i) {
			g++
		}
	}
	return g
}

// margin is how many of g nodes may forget the lock unseen before a rival could gather need grants of n nodes.
func margin(g, need, n int) int {
	return max(0, g+need-n-1)
}

// end makes the hold dead, once. It reports whether this call did it; then the caller must release the keys and call
// the ended hook, both without h.mu. h.mu must be held.
func (h *hold) end(err error) bool {
	if h.phase == dead {
		return false
	}
	h.phase, h.err = dead, err
	return true
}

// expiry is the cause of a loss at now because the time is up. h.mu must be held.
func (h *hold) expiry(now instant) error {
	byMaxHold := h.maxHold > 0 && remaining(h.maxHold, h.began, now) <= remaining(h.validity, h.from, now)
	switch {
	case byMaxHold:
		return &lossError{resources: h.resources, cause: ErrMaxHold}
	case h.lease:
		return &lossError{resources: h.resources}
	case h.failure != nil:
		return &lossError{resources: h.resources, cause: h.failure}
	}
	return &lossError{resources: h.resources, cause: ErrNoQuorum}
}

// newToken is 128 random bits and, behind them, the label. crypto/rand does not fail.
func newToken(label string) string {
	var bits [16]byte
	_, _ = rand.Read(bits[:])
	b := make([]byte, 0, 23+len(label))
	b = base64.RawURLEncoding.AppendEncode(b, bits[:])
	if label != "" {
		b = append(append(b, ' '), label...)
	}
	return string(b)
}

package redlock

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a waiting call hears of the nodes, and what follows from it.

// ear is what a waiter has heard of one node.
type ear struct {
	free    bool          // nothing is in the way there, by the last try or by a release since
	before  bool          // the same, before the present try
	doubt   bool          // it denied, and told of a release at about that time: which came first has to be asked
	why     error         // why it did not answer the last join
	first   bool          // we are first in its queue
	asOf    int64         // by its clock, what we know of that; of two words of one moment the better one counts
	blocked int           // the resource that was in the way, -1: unknown
	until   time.Duration // when the key in the way runs out, by what we know; monotonic; forever: unknown
}

// note keeps what the votes have said.
func (w *waiter) note(r *round, led bool) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.asking = false
	for _, l := range w.at {
		l.streak = 0
	}
	if r == nil {
		return
	}
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	free, granted, denied, wanted := 0, 0, 0, w.keys[0]
	now := w.lines.q.clock.mono()
	w.leader = -1
	for i, b := range r.votes {
		e := &w.ears[i]
		switch {
		case led && i != r.leader:
			e.free = e.free || e.before // it was not asked
		case b.cast && b.kind == voteGrant:
			e.free = true
			free, granted = free+1, granted+1
		case b.cast && b.kind == voteDenied:
			e.doubt, e.free = e.free, false
			e.blocked, e.until = b.key, forever
			if b.remaining >= 0 {
				e.until = now + min(b.remaining+time.Millisecond, forever)
			}
			if denied == 0 && b.key >= 0 { // of a fence's raising it is not told
				wanted = w.keys[b.key]
			}
			denied++
		}
	}
	if free >= w.lines.q.need { // it was not for want of votes
		for i := range w.ears {
			w.ears[i].free = false
		}
	}
	for _, l := range w.at {
		if granted > 0 && denied > 0 {
			l.crowd = crowded
		}
		if len(w.keys) == 1 {
			l.last = w.last
		}
		if l.crowd > 0 {
			w.leader = leaderOf(wanted, r)
		}
		if len(w.keys) > 1 {
			l.pokeLocked() // what is in our way leaves the other resources to others
		}
	}
	if led {
		w.leadBy = now + leadGrace
	}
}

// ask asks the nodes which denied and told of a release at about the same time whether the key is still there.
func (w *waiter) ask() {
	q := w.lines.q
	keys := make([]string, len(q.nodes))
	w.lines.mu.Lock()
	for i := range w.ears {
		if e := &w.ears[i]; e.doubt {
			e.doubt, keys[i] = false, w.keys[max(0, e.blocked)]
		}
	}
	w.lines.mu.Unlock()
	for i, key := range keys {
		if key != "" {
			w.lines.lookAt(i, []string{key})
		}
	}
}

// leadGrace is how long a call that knows enough free nodes waits for the one that it is to ask first. That one may have
// died, or hold an orphan.
const leadGrace = 50 * time.Millisecond

// leaderOf is the node that all who want a resource ask first: from the one that the resource's hash says, the first that
// granted, or denied for a while.
func leaderOf(key string, r *round) int {
	n := len(r.votes)
	start := 0
	for i := range len(key) {
		start = (start*31 + int(key[i])) % n
	}
	for k := range n {
		if b := r.votes[(start+k)%n]; b.cast && (b.kind == voteGrant || b.kind == voteDenied && b.remaining >= 0) {
			return (start + k) % n
		}
	}
	return -1
}

// expiry is when enough of the keys in the way will have run out, as far as is known.
func (w *waiter) expiry() time.Duration {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	free := 0
	var buf [16]time.Duration
	ends := buf[:0]
	for _, e := range w.ears {
		if e.free {
			free++
		} else {
			ends = append(ends, e.until)
		}
	}
	slices.Sort(ends)
	end := time.Duration(0)
	if missing := w.lines.q.need - free; missing > 0 {
		end = ends[missing-1]
	}
	if w.leader >= 0 && !w.ears[w.leader].free {
		end = max(end, min(w.ears[w.leader].until, w.leadBy))
	}
	return end
}

// audible says whether releases reach us from enough nodes.
func (w *waiter) audible() bool {
	n := 0
	for _, l := range w.lines.listeners {
		all := true
		for _, k := range w.keys {
			all = all && l.hears(k)
		}
		if all {
			n++
		}
	}
	return n >= w.lines.q.need
}

// joining takes the answers to one join. A place counts where others see it; on fewer nodes than an acquire needs it is of
// no use, and only keeps others from being the first there.
type joining struct {
	w            *waiter
	open, placed int // nodes that have not answered, and that have placed it; guarded by lines.mu
}

func (*joining) sending(*request) bool { return true }

func (j *joining) answered(r *request, v vote) {
	w := j.w
	now := w.lines.q.clock.now()
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	j.open--
	w.ears[r.node].why = v.reason
	if v.kind == voteGrant {
		j.placed++
		w.ears[r.node].placed(v.count == 0, v.micros)
		if v.count > 0 {
			w.behindLocked()
		}
		w.tryLocked(now)
	}
	if j.placed+j.open < w.lines.q.need && !w.astray {
		w.astray = true
		w.poke()
	}
}

// behindLocked notes that others are before it in a node's queue. lines.mu must be held.
func (w *waiter) behindLocked() {
	for _, l := range w.at {
		l.streak = 0 // it is theirs next
	}
	if !w.behind {
		w.behind = true
		w.poke()
	}
}

// hearLocked notes that a key is free on a node. lines.mu must be held.
func (w *waiter) hearLocked(node int, key string) {
	e := &w.ears[node]
	e.free = e.free || len(w.keys) == 1 || e.blocked < 0 || w.keys[e.blocked] == key
}

// hint is a message: of a release, or of the place in a fair queue whose turn it is.
type hint struct {
	first string
	asOf  int64 // by the node's clock, in microseconds
}

func parseHint(text string) hint {
	first, at, _ := strings.Cut(text, " ")
	asOf, _ := strconv.ParseInt(at, 10, 64)
	return hint{first, asOf}
}

// placed takes a word about our place in a node's queue. Answers and messages come on two connections, and may overtake
// each other.
func (e *ear) placed(first bool, asOf int64) {
	if asOf > e.asOf || asOf == e.asOf && first {
		e.first, e.asOf = first, asOf
	}
}

// hintLocked is told of a hint, when it is the call's turn. lines.mu must be held.
func (w *waiter) hintLocked(node int, key string, h hint) {
	e := &w.ears[node]
	switch {
	case h.first == "":
		w.hearLocked(node, key)
	case w.ticket == nil:
	case h.first != w.ticket.token:
		e.placed(false, h.asOf)
	case len(w.keys) == 1:
		e.placed(true, h.asOf)
	default: // it is our turn in one queue; join tells of all
		w.rejoin = true
		w.poke()
	}
	w.tryLocked(w.lines.q.clock.now())
}

// stuckLocked says whether a call for several resources waits for another than the given one to be free. What it does not
// count is who is before it elsewhere: lines are entered all at once, so those have come earlier to both, and nobody waits
// in a circle. lines.mu must be held.
func (w *waiter) stuckLocked(in *line) bool {
	for _, l := range w.at {
		if l != in && l.busy != nil {
			return true
		}
	}
	denied := 0
	for _, e := range w.ears {
		if !e.free && e.blocked >= 0 && w.keys[e.blocked] != in.key {
			denied++
		}
	}
	return len(w.ears)-denied < w.lines.q.need
}

// seenLocked is told when a key on one node will run out. lines.mu must be held.
func (w *waiter) seenLocked(node int, key string, until time.Duration) {
	e := &w.ears[node]
	if len(w.keys) == 1 || e.blocked >= 0 && w.keys[e.blocked] == key {
		e.until = until
	}
}

// freeLocked is told that a lock of this process, which was in the way, has ended. lines.mu must be held.
func (w *waiter) freeLocked(key string, now instant) {
	for i := range w.ears {
		w.hearLocked(i, key)
	}
	w.leader = -1 // behind the releases in every queue, nobody is before us
	w.tryLocked(now)
}

// tryLocked begins a round on behalf of the waiter if it is time for one, or wakes it to do so. lines.mu must be held.
func (w *waiter) tryLocked(now instant) {
	q := w.lines.q
	if !w.readyLocked(now.mono) {
		if max(w.rest, w.leadBy) > now.mono {
			w.poke()
		}
		return
	}
	if w.ticket == nil && w.leader < 0 && q.mayBegin() {
		w.beginLocked()
		w.round = q.newAcquire(now, &w.wish)
		w.round.ask(nil)
	}
	w.poke()
}

// beginLocked notes that a round begins: what is heard from now on counts for the next. lines.mu must be held.
func (w *waiter) beginLocked() {
	w.asking, w.leadBy = true, 0
	for i := range w.ears {
		w.ears[i].before, w.ears[i].free = w.ears[i].free, false
	}
}

// readyLocked says whether it is time to ask. lines.mu must be held.
func (w *waiter) readyLocked(now time.Duration) bool {
	if w.asking || now < w.rest || !w.firstLocked() || w.busyLocked() {
		return false
	}
	n := 0
	for _, e := range w.ears {
		if e.free && (w.ticket == nil || e.first) {
			n++
		}
	}
	switch {
	case n < w.lines.q.need:
		return false
	case w.leader < 0 || w.ears[w.leader].free:
		return true
	case w.leadBy == 0:
		w.leadBy = now + leadGrace
	case now >= w.leadBy:
		w.leader = -1
		return true
	}
	return false
}

func (w *waiter) busyLocked() bool {
	for _, l := range w.at {
		if l.busy != nil {
			return true
		}
	}
	return false
}

func (w *waiter) firstLocked() bool {
	for _, l := range w.at {
		if l.headLocked() != w {
			return false
		}
	}
	return len(w.at) > 0
}

func (w *waiter) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

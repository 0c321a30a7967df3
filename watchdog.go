package redlock

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	longestTick = time.Second // how late a suspended machine notices that its locks are gone, at most
	maxSlack    = 20 * time.Millisecond
	maxRenewals = 1024 // renewal rounds under way at once, so that their requests fit into the nodes' queues
)

// watchdog keeps all held locks of a pool alive and ends those whose time is up. One goroutine, one heap: a held lock
// costs an entry, not a goroutine.
//
//	add -> heap by next -> attend: over? renew? -> round -> settled -> heap
type watchdog struct {
	q    *quorum       // set by newWatchdog, then read-only
	wake chan struct{} // with room for one
	stop chan struct{}

	mu     sync.Mutex    // guards the fields below and every watched but its hold
	list   []*watched    // all that is held, also while run attends to it
	heap   watchHeap     // by when to attend to it
	queue  []*watched    // due, but too many renewals are under way
	tick   time.Duration // a tenth of the smallest TTL held
	sleeps time.Duration // until when run sleeps, monotonic since the epoch
	flying int           // renewal rounds under way
	due    []*watched    // of run alone: what takeDue returned last
	skew   time.Duration // boot less monotonic time when all holds were last checked
	tuned  time.Duration // when tick was last computed, monotonic since the epoch
}

// watched is a hold as the watchdog sees it; it lives in the lock's handle.
type watched struct {
	h       *hold         // set by add, then read-only
	pos     int           // in the list
	index   int           // in the heap; -1 while it is not there
	queued  bool          // in the queue
	next    time.Duration // when to attend to it, monotonic since the epoch
	renewAt time.Duration // when its renewal is due
	first   bool          // the first due is for a top-up alone
	round   *round        // the renewal under way
	gone    bool          // the hold is dead
}

func newWatchdog(q *quorum) *watchdog {
	return &watchdog{q: q, wake: make(chan struct{}, 1), stop: make(chan struct{}), tick: longestTick}
}

// add begins to watch a hold that was just acquired. A node timeout after its start, when every node has had its say,
// the free ones are topped up.
func (w *watchdog) add(t *watched, h *hold) {
	*t = watched{h: h, index: -1, renewAt: h.began.mono + h.nodeTimeout, first: true}
	w.mu.Lock()
	if len(w.list) == 0 {
		w.tick = longestTick
	}
	w.tick = tickFor(w.tick, h.ttl)
	t.pos = len(w.list)
	w.list = append(w.list, t)
	w.mu.Unlock()
	w.put(t)
}

func tickFor(tick, ttl time.Duration) time.Duration {
	return max(time.Millisecond, min(tick, ttl/10))
}

// remove ends the watch. A renewal under way is dropped where it was not sent yet.
func (w *watchdog) remove(t *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.gone {
		return
	}
	t.gone = true
	last := len(w.list) - 1
	w.list[t.pos] = w.list[last]
	w.list[t.pos].pos = t.pos
	w.list[last] = nil
	w.list = w.list[:last]
	if t.index >= 0 {
		heap.Remove(&w.heap, t.index)
	}
}

// put brings a hold to its place in the heap: the next renewal, the end of the round under way or the deadline,
// whichever is first.
func (w *watchdog) put(t *watched) {
	t.h.mu.Lock()
	now := w.q.clock.now()
	deadline := now.mono + min(t.h.left(now), forever)
	t.h.mu.Unlock()

	w.mu.Lock()
	defer w.mu.Unlock()
	if t.gone {
		return
	}
	t.next = t.renewAt
	if t.round != nil {
		t.next = t.round.start.mono + t.round.timeout
	} else if t.queued {
		t.next = forever
	}
	t.next = min(t.next, deadline)
	if t.index >= 0 {
		heap.Fix(&w.heap, t.index)
	} else {
		heap.Push(&w.heap, t)
	}
	if t.next < w.sleeps {
		w.nudge()
	}
}

func (w *watchdog) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// all lists what is held.
func (w *watchdog) all() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.list)
}

func (w *watchdog) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

// run is the watchdog's goroutine. It ends when stop is closed.
func (w *watchdog) run() {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		w.pass()
		wait := forever
		w.mu.Lock()
		now := w.q.clock.mono()
		if len(w.heap) > 0 {
			wait = min(w.tick, max(0, w.heap[0].next-now))
		}
		w.sleeps = now + wait
		w.mu.Unlock()
		timer.Reset(wait)
		select {
		case <-w.stop:
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// pass attends to every hold that is due. Timers stand still while the machine is suspended, and so does the heap's
// order; so where the clock that runs on has got ahead, every hold is checked.
func (w *watchdog) pass() {
	if w.jumped() {
		w.recheck()
	}
	due := w.takeDue()
	for i, t := range due {
		w.attend(t)
		if i%maxBatch == maxBatch-1 {
			w.q.nudge()
		}
	}
	clear(due)
	w.drain()
	w.q.nudge()
}

// jumped says whether the clock that runs on while the machine is suspended has got ahead since it last did. Once a
// second it also finds the smallest TTL held.
func (w *watchdog) jumped() bool {
	now := w.q.clock.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.mono-w.tuned >= longestTick {
		w.tuned, w.tick = now.mono, longestTick
		for _, t := range w.list {
			w.tick = tickFor(w.tick, t.h.ttl)
		}
	}
	ahead := now.boot - now.mono - w.skew
	if ahead > time.Millisecond || ahead < -time.Millisecond {
		w.skew += ahead
	}
	return ahead > time.Millisecond
}

// recheck looks at every held lock after our clock was put right: some have ended, others have to be renewed at once.
func (w *watchdog) recheck() {
	for _, t := range w.all() {
		if w.q.alive(t.h) {
			w.hurry(t)
		}
	}
}

// drain starts renewals that had to wait until others were over.
func (w *watchdog) drain() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 || w.flying >= maxRenewals {
			w.mu.Unlock()
			return
		}
		t := w.queue[0]
		w.queue = w.queue[1:]
		t.queued = false
		gone, due := t.gone, t.renewAt
		w.mu.Unlock()
		if !gone {
			w.renew(t, max(0, w.q.clock.mono()-due))
			w.put(t)
		}
	}
}

// takeDue removes from the heap what is due, and what will be within the slack: so renewals leave in batches and not
// one by one.
func (w *watchdog) takeDue() []*watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = w.due[:0]
	until := w.q.clock.mono() + w.slack()
	for len(w.heap) > 0 && w.heap[0].next <= until {
		w.due = append(w.due, heap.Pop(&w.heap).(*watched))
	}
	return w.due
}

// slack is how much too early a renewal may be sent: a hundredth of the smallest TTL. w.mu must be held.
func (w *watchdog) slack() time.Duration { return min(maxSlack, w.tick/10) }

// hurry renews at once a hold that a jump of the clock has left with less than it had when its renewal was planned.
func (w *watchdog) hurry(t *watched) {
	h := t.h
	h.mu.Lock()
	now := w.q.clock.now()
	left := h.left(now)
	h.mu.Unlock()
	w.mu.Lock()
	if !h.lease && left < h.validity/2 {
		t.renewAt = min(t.renewAt, now.mono)
	}
	w.mu.Unlock()
	w.put(t)
}

// attend does what is due for a hold that was taken out of the heap.
func (w *watchdog) attend(t *watched) {
	h := t.h
	// 1. The deadline ends it, whether or not any node answers.
	if !w.q.alive(h) {
		return
	}

	// 2. A round that ran out of time is decided now.
	now := w.q.clock.now()
	w.mu.Lock()
	r, due, first, queued := t.round, t.renewAt, t.first, t.queued
	soon := now.mono + w.slack()
	w.mu.Unlock()
	switch {
	case r != nil:
		if r.age() >= r.timeout {
			r.expire()
		}

	// 3. A renewal is due.
	case due <= soon && first && w.satisfied(t, now):
	case due <= soon && h.lease:
		w.q.topUp(h)
		w.plan(t, forever)
	case due <= soon && !queued:
		w.wait(t)
		w.drain()
	}
	w.put(t)
}

// wait queues a hold for drain.
func (w *watchdog) wait(t *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.queued = true
	w.queue = append(w.queue, t)
}

// satisfied says whether a fresh hold is on all nodes, and then plans its first true renewal.
func (w *watchdog) satisfied(t *watched, now instant) bool {
	h := t.h
	h.mu.Lock()
	full := h.holding(now, w.q.keeper.isSteady) == len(h.nodes)
	began := h.began.mono
	h.mu.Unlock()
	if full {
		w.plan(t, w.after(h, began))
	}
	return full
}

// after is when to renew a hold confirmed at the given time: a third of the TTL later, less a little, so that locks
// taken together spread out.
func (w *watchdog) after(h *hold, confirmed time.Duration) time.Duration {
	if h.lease {
		return forever
	}
	third := h.ttl / 3
	return confirmed + third - rand.N(third/8+1)
}

func (w *watchdog) plan(t *watched, at time.Duration) {
	w.mu.Lock()
	t.renewAt, t.first = at, false
	w.mu.Unlock()
}

// renew starts a round; settled ends it, in whichever goroutine brings the deciding vote.
func (w *watchdog) renew(t *watched, late time.Duration) {
	r := w.q.renew(t.h, func(r *round) { w.settled(t, r) })
	r.late = late
	for {
		seen := w.q.counts.maxLateness.Load()
		if int64(late) <= seen || w.q.counts.maxLateness.CompareAndSwap(seen, int64(late)) {
			break
		}
	}
	w.mu.Lock()
	t.round, t.first = r, false
	w.flying++
	w.mu.Unlock()
	r.enqueue(nil)
}

// settled plans the next renewal: a third of the TTL after the start of one that succeeded, soon after one that did
// not.
func (w *watchdog) settled(t *watched, r *round) {
	alive, err := w.q.conclude(r)
	next := w.after(r.h, r.start.mono)
	if err != nil {
		soon := min(time.Second, r.h.ttl/10)
		next = w.q.clock.mono() + soon/2 + rand.N(soon/2+1)
	}
	w.mu.Lock()
	w.flying--
	t.round, t.renewAt = nil, next
	if len(w.queue) > 0 {
		w.nudge()
	}
	w.mu.Unlock()
	if alive {
		w.put(t)
	}
}

type watchHeap []*watched

func (h watchHeap) Len() int           { return len(h) }
func (h watchHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h watchHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *watchHeap) Push(x any) {
	x.(*watched).index = len(*h)
	*h = append(*h, x.(*watched))
}
func (h *watchHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.index = -1
	return x
}

package redlock

import (
	"container/heap"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	longestTick = time.Second // how late a suspended machine notices that its locks are gone, at most
	maxRenewals = 1024        // renewal rounds under way at once, so that their requests fit into the nodes' queues
)

// watchdog keeps all held locks of a pool alive and ends those whose time is up. One goroutine, one heap: a held lock
// costs an entry, not a goroutine.
//
//	add -> heap by next -> attend: over? renew? -> round -> settled -> heap
type watchdog struct {
	q    *quorum       // set by newWatchdog, then read-only
	wake chan struct{} // with room for one
	stop chan struct{}

	mu     sync.Mutex // guards the fields below and every hold's watch
	holds  holdHeap
	tick   time.Duration // a tenth of the smallest TTL held
	sleeps time.Duration // until when run sleeps, monotonic since the epoch
	flying int           // renewal rounds under way
	skew   time.Duration // boot less monotonic time when all holds were last checked
}

// watched is the watchdog's view of a hold. The watchdog's mutex guards it.
type watched struct {
	index   int           // in the heap; -1 while it is not there
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
func (w *watchdog) add(h *hold) {
	h.watch = watched{index: -1, renewAt: h.began.mono + h.nodeTimeout, first: true}
	w.mu.Lock()
	if len(w.holds) == 0 {
		w.tick = longestTick
	}
	w.tick = max(time.Millisecond, min(w.tick, h.ttl/10))
	w.mu.Unlock()
	w.put(h)
}

// remove ends the watch. A renewal under way is dropped where it was not sent yet.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.watch.gone = true
	if h.watch.index >= 0 {
		heap.Remove(&w.holds, h.watch.index)
	}
}

// put brings a hold to its place in the heap: the next renewal, the end of the round under way or the deadline,
// whichever is first.
func (w *watchdog) put(h *hold) {
	now := w.roughly()
	h.mu.Lock()
	deadline := now.mono + min(h.left(now), forever)
	h.mu.Unlock()

	w.mu.Lock()
	defer w.mu.Unlock()
	t := &h.watch
	if t.gone {
		return
	}
	t.next = t.renewAt
	if t.round != nil {
		t.next = t.round.start.mono + t.round.timeout
	} else if w.flying >= maxRenewals {
		t.next = max(t.next, now.mono+time.Millisecond)
	}
	t.next = min(t.next, deadline)
	if t.index >= 0 {
		heap.Fix(&w.holds, t.index)
	} else {
		heap.Push(&w.holds, h)
	}
	if t.next < w.sleeps {
		w.nudge()
	}
}

// roughly is now without a system call: the second clock as far ahead as at the last pass. It decides when to look, not
// what is seen.
func (w *watchdog) roughly() instant {
	w.mu.Lock()
	defer w.mu.Unlock()
	mono := w.q.clock.mono()
	return instant{mono: mono, boot: mono + w.skew}
}

func (w *watchdog) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// all lists what is held.
func (w *watchdog) all() []*hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*hold(nil), w.holds...)
}

func (w *watchdog) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.holds)
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
		if len(w.holds) > 0 {
			wait = min(w.tick, max(0, w.holds[0].watch.next-now))
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
	now := w.q.clock.now()
	w.mu.Lock()
	jumped := now.boot-now.mono-w.skew > time.Millisecond
	if jumped {
		w.skew = now.boot - now.mono
	}
	w.mu.Unlock()
	if jumped {
		for _, h := range w.all() {
			if w.q.alive(h) {
				w.hurry(h)
			}
		}
	}
	for {
		w.mu.Lock()
		if len(w.holds) == 0 || w.holds[0].watch.next > w.q.clock.mono() {
			w.mu.Unlock()
			return
		}
		h := heap.Pop(&w.holds).(*hold)
		w.mu.Unlock()
		w.attend(h)
	}
}

// hurry renews at once a hold that a jump of the clock has left with less than it had when its renewal was planned.
func (w *watchdog) hurry(h *hold) {
	h.mu.Lock()
	now := w.q.clock.now()
	left := h.left(now)
	h.mu.Unlock()
	w.mu.Lock()
	if !h.lease && left < h.validity/2 {
		h.watch.renewAt = min(h.watch.renewAt, now.mono)
	}
	w.mu.Unlock()
	w.put(h)
}

// attend does what is due for a hold that was taken out of the heap.
func (w *watchdog) attend(h *hold) {
	// 1. The deadline ends it, whether or not any node answers.
	if !w.q.alive(h) {
		return
	}

	// 2. A round that ran out of time is decided now.
	now := w.q.clock.now()
	w.mu.Lock()
	r, due, first := h.watch.round, h.watch.renewAt, h.watch.first
	busy := w.flying >= maxRenewals
	w.mu.Unlock()
	switch {
	case r != nil:
		if r.age() >= r.timeout {
			r.expire()
		}

	// 3. A renewal is due.
	case due <= now.mono && first && w.satisfied(h, now):
	case due <= now.mono && h.lease:
		w.q.topUp(h)
		w.plan(h, forever)
	case due <= now.mono && !busy:
		w.renew(h, now.mono-due)
	}
	w.put(h)
}

// satisfied says whether a fresh hold is on all nodes, and then plans its first true renewal.
func (w *watchdog) satisfied(h *hold, now instant) bool {
	h.mu.Lock()
	full := h.holding(now) == len(h.nodes)
	h.mu.Unlock()
	if full {
		w.plan(h, w.after(h, h.began.mono))
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

func (w *watchdog) plan(h *hold, at time.Duration) {
	w.mu.Lock()
	h.watch.renewAt, h.watch.first = at, false
	w.mu.Unlock()
}

// renew starts a round; settled ends it, in whichever goroutine brings the deciding vote.
func (w *watchdog) renew(h *hold, late time.Duration) {
	r := w.q.renew(h, w.settled)
	r.late = late
	for {
		seen := w.q.counts.maxLateness.Load()
		if int64(late) <= seen || w.q.counts.maxLateness.CompareAndSwap(seen, int64(late)) {
			break
		}
	}
	w.mu.Lock()
	h.watch.round, h.watch.first = r, false
	w.flying++
	w.mu.Unlock()
	r.ask(nil)
}

// settled plans the next renewal: a third of the TTL after the start of one that succeeded, soon after one that did
// not.
func (w *watchdog) settled(r *round) {
	alive, err := w.q.conclude(r)
	next := w.after(r.h, r.start.mono)
	if err != nil {
		soon := min(time.Second, r.h.ttl/10)
		next = w.q.clock.mono() + soon/2 + rand.N(soon/2+1)
	}
	w.mu.Lock()
	w.flying--
	r.h.watch.round, r.h.watch.renewAt = nil, next
	w.mu.Unlock()
	if alive {
		w.put(r.h)
	}
}

type holdHeap []*hold

func (h holdHeap) Len() int           { return len(h) }
func (h holdHeap) Less(i, j int) bool { return h[i].watch.next < h[j].watch.next }
func (h holdHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].watch.index, h[j].watch.index = i, j
}
func (h *holdHeap) Push(x any) {
	x.(*hold).watch.index = len(*h)
	*h = append(*h, x.(*hold))
}
func (h *holdHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.watch.index = -1
	return x
}

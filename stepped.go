package redlock

import (
	"sync"
	"time"
)

// Clocks that went wrong. Each reading of a node's clock is compared with earlier ones on our own. Where they differ by
// more than the allowance, one of the two is wrong, and the other nodes say which: if most of them differ alike it is
// ours (a paused machine), otherwise it is that node's.

// inquiry asks all nodes for their clocks because one of them differed.
type inquiry struct {
	opened time.Duration // monotonic since the epoch
	age    time.Duration // of the baseline from which that one differed

	mu    sync.Mutex // guards the field below
	jumps map[int]testimony
}

// testimony is by how much one node's clock jumped against ours; unknown where it was not followed for long enough to
// tell.
type testimony struct {
	jump    time.Duration
	unknown bool
}

func (q *inquiry) heard(i int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.jumps[i]
	return ok
}

func (q *inquiry) note(i int, t testimony) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.jumps[i]; !ok {
		q.jumps[i] = t
	}
}

// pace is now, on both of our clocks only where nodes' clocks are compared with them.
func (n *node) pace() instant {
	if n.keeper.guard == 0 {
		return instant{mono: n.clock.mono()}
	}
	return n.clock.pace()
}

// testify compares a reading of the node's clock with earlier ones. On false the node's votes of this pipeline do not
// count: its clock, or ours, went wrong.
func (n *node) testify(s sample) bool {
	k := n.keeper
	if k.guard == 0 || s.micros == 0 {
		return true
	}
	if k.rebase[n.index].CompareAndSwap(true, false) {
		n.base = baselines{}
	}
	jump, age := n.base.compare(k.drift, s, k.guard)
	inquiry := k.inquiry.Load()
	switch {
	case jump != 0:
		k.accuse(n.index, jump, age)
		n.marker = noMarker
		return false
	case inquiry == nil:
		far := n.base.far // before s takes its place
		n.base.keep(k.drift, s, n.idle, k.guard)
		n.showClock(far, s)
	case s.asked.mono >= inquiry.opened:
		inquiry.note(n.index, testimony{unknown: age < inquiry.age/2})
		k.conclude(inquiry, n.clock.mono())
	}
	return true
}

// showClock notes what Stats shows of the clock; its rate since far, or the last that is known.
func (n *node) showClock(far, s sample) {
	if s != n.base.near {
		return // only a new baseline is worth a look at the wall clock
	}
	c := ClockStats{Offset: time.Duration(s.micros-time.Now().UnixMicro())*time.Microsecond + s.width()/2, Bound: s.width() / 2}
	if share, bound, ok := rate(far, s); ok && elapsed(far.heard, s.asked) <= n.keeper.guard {
		c.Rate, c.RateBound = share, bound
	} else if last := n.clockStats.Load(); last != nil {
		c.Rate, c.RateBound = last.Rate, last.RateBound
	}
	n.clockStats.Store(&c)
}

// accuse opens an inquiry, or adds to the one that is open.
func (k *keeper) accuse(i int, jump, age time.Duration) {
	q := &inquiry{opened: k.clock.mono(), age: age, jumps: map[int]testimony{i: {jump: jump}}}
	if k.inquiry.CompareAndSwap(nil, q) {
		k.mu.Lock()
		m := &k.nodes[i]
		m.held, m.heldFor = q.opened+k.watch, clockReason(jump)
		k.mu.Unlock()
		k.conclude(q, q.opened) // a pool of one node has nobody to ask
		k.call()
		return
	}
	if q = k.inquiry.Load(); q != nil {
		q.note(i, testimony{jump: jump})
		k.conclude(q, k.clock.mono())
	}
}

func clockReason(jump time.Duration) error {
	if jump > 0 {
		return reason("its clock went ahead of ours by " + jump.Round(time.Millisecond).String())
	}
	return reason("its clock fell behind ours by " + (-jump).Round(time.Millisecond).String())
}

// conclude ends an inquiry as soon as its outcome is certain, or a node timeout after it was opened.
func (k *keeper) conclude(q *inquiry, now time.Duration) {
	k.mu.Lock()
	q.mu.Lock()
	agree, alike, largest, waiting := 0, 0, time.Duration(0), false
	for i, m := range k.nodes {
		t, heard := q.jumps[i]
		switch {
		case heard && t.unknown:
		case heard && t.jump == 0:
			agree++
		case heard:
			if abs(t.jump) > abs(largest) {
				largest = t.jump
			}
		case m.phase != unseen && m.phase != away:
			waiting = true
		}
	}
	for _, t := range q.jumps {
		if !t.unknown && t.jump != 0 && (t.jump > 0) == (largest > 0) && 2*abs(t.jump) >= abs(largest) {
			alike++
		}
	}
	over := !waiting || now-q.opened >= k.timeout
	ours := alike >= k.majority || over && agree == 0 && alike > 1
	theirs := agree >= k.majority || over && agree > 0
	if !ours && !theirs && !over || !k.inquiry.CompareAndSwap(q, nil) {
		q.mu.Unlock()
		k.mu.Unlock()
		return
	}
	var told []Event
	for i := range k.nodes {
		m := &k.nodes[i]
		t, heard := q.jumps[i]
		jumped := heard && !t.unknown && t.jump != 0
		switch {
		case ours:
			m.held, m.heldFor = 0, nil
			k.rebase[i].Store(true)
		case jumped:
			m.held, m.heldFor = now+k.watch, clockReason(t.jump)
			m.stepped = theirs
			k.rebase[i].Store(true)
			if now >= m.told {
				told = append(told, Event{Node: m.name, Err: m.heldFor})
			}
			m.told = m.held
		}
	}
	q.mu.Unlock()
	k.mu.Unlock()
	if ours {
		k.ourClock(largest, now)
	}
	for _, ev := range told {
		k.events.emit(evClockStepped, ev)
	}
	k.call()
}

// ourClock draws the consequences of our own clock having stood still, or run ahead: no new lock for a guard, and what
// is held ends earlier by what was missed.
func (k *keeper) ourClock(jump, now time.Duration) {
	k.barred.Store(int64(now + k.watch))
	if jump > 0 {
		k.jumped(jump)
	}
	k.events.emit(evClockStepped, Event{Err: ourClockReason(jump)})
}

func ourClockReason(jump time.Duration) error {
	if jump > 0 {
		return reason("our own clock stood still for " + jump.Round(time.Millisecond).String() + ", by most of the nodes' clocks")
	}
	return reason("our own clock went ahead by " + (-jump).Round(time.Millisecond).String() + ", by most of the nodes' clocks")
}

// barredFor is how long no new lock may be taken because our own clock was wrong; 0 if not.
func (k *keeper) barredFor() time.Duration {
	until := time.Duration(k.barred.Load())
	if until == 0 {
		return 0
	}
	return max(0, until-k.clock.mono())
}

func abs(d time.Duration) time.Duration { return max(d, -d) }

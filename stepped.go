package redlock

import (
	"cmp"
	"sync"
	"time"
)

// Clocks that went wrong. Each reading of a node's clock is compared with earlier ones on our own. Where they differ by
// more than the allowance, one of the two is wrong, and the other nodes say which. Each is asked by how much its clock
// deviated from ours over the same time: alike, and it is our clock that is wrong (a paused machine, or a rate); not at
// all, and it is that node's.

// inquiry asks all nodes for their clocks because one of them differed.
type inquiry struct {
	opened time.Duration // monotonic since the epoch
	jump   time.Duration // by how much that one differed
	age    time.Duration // over which time

	mu    sync.Mutex // guards the field below
	words map[int]testimony
}

// testimony is what one node's clock says of an inquiry, as of its last reading.
type testimony struct {
	jump time.Duration // 0: within the allowance
	word word
}

type word uint8

const (
	cannotTell word = iota // not followed for long enough, or in between
	agrees                 // with our clock: it did not deviate by half as much
	differs                // from our clock alike
)

func (q *inquiry) heard(i int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.words[i]
	return ok
}

func (q *inquiry) note(i int, t testimony) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.words[i] = t
}

// weigh says what a deviation between low and high means; extra is what an honest clock may have deviated in the time
// by which it was followed for longer.
func (q *inquiry) weigh(low, high, extra time.Duration) word {
	j := q.jump
	if j < 0 {
		j, low, high = -j, -high, -low
	}
	switch {
	case high < j/2 && low > -j/2:
		return agrees
	case low-extra > j/4 && high < 4*j+extra+clockGrain:
		return differs
	}
	return cannotTell
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
	era := k.era.Load()
	if k.rebase[n.index].CompareAndSwap(true, false) {
		n.base = baselines{}
	}
	jump, age := n.base.compare(k.drift, s, k.guard)
	if jump == 0 && k.inquiry.Load() == nil {
		oldest := n.base.oldest(s, k.guard)
		n.base.keep(k.drift, s, n.idle, k.guard)
		n.showClock(oldest, s)
		return true
	}
	if jump != 0 {
		n.marker = noMarker
		k.accuse(n.index, jump, age, era)
	}
	if q := k.inquiry.Load(); q != nil && s.heard.mono >= q.opened {
		t := testimony{jump: jump}
		if low, high, longer, ok := n.base.since(s, q.age+s.asked.mono-q.opened, k.guard); ok {
			t.word = q.weigh(low, high, k.drift.allowance(longer)-k.drift.floor)
		}
		if jump != 0 && t.word == agrees {
			t.word = cannotTell
		}
		if jump == 0 {
			n.base.keep(k.drift, s, n.idle, k.guard)
		}
		q.note(n.index, t)
		k.conclude(q, n.clock.mono())
	}
	return jump == 0
}

// showClock notes what Stats shows of the clock, its rate since an earlier reading.
func (n *node) showClock(earlier, s sample) {
	if s != n.base.near[0] {
		return // only a new baseline is worth a look at the wall clock
	}
	c := ClockStats{Offset: time.Duration(s.micros-time.Now().UnixMicro())*time.Microsecond + s.width()/2, Bound: s.width() / 2}
	if share, bound, ok := rate(earlier, s); ok {
		c.Rate, c.RateBound = share, bound
	} else if last := n.clockStats.Load(); last != nil {
		c.Rate, c.RateBound = last.Rate, last.RateBound
	}
	n.clockStats.Store(&c)
}

// accuse keeps a node out of our rounds and opens an inquiry, where none is open. One that ended since the given era has
// settled the matter.
func (k *keeper) accuse(i int, jump, age time.Duration, era uint64) {
	q := &inquiry{opened: k.clock.mono(), jump: jump, age: age, words: map[int]testimony{}}
	k.mu.Lock()
	opened := false
	if k.era.Load() == era {
		k.nodes[i].held, k.nodes[i].heldFor = q.opened+k.watch, clockReason(jump)
		opened = k.inquiry.CompareAndSwap(nil, q)
	}
	k.mu.Unlock()
	if opened {
		k.call()
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
		t, heard := q.words[i]
		switch {
		case !heard:
			waiting = waiting || m.phase != unseen && m.phase != away
		case t.word == agrees:
			agree++
		case t.word == differs:
			alike++
		}
		if (t.jump > 0) == (q.jump > 0) && abs(t.jump) > abs(largest) {
			largest = t.jump
		}
	}
	over := now-q.opened >= k.timeout || !waiting
	// Where nobody can tell it may be ours: to believe so costs locks, to believe otherwise may cost their safety.
	ours := alike >= k.majority || over && agree == 0
	theirs := agree >= k.majority || over && agree > 1 && agree > alike
	if !ours && !theirs && !over || !k.inquiry.CompareAndSwap(q, nil) {
		q.mu.Unlock()
		k.mu.Unlock()
		return
	}
	k.era.Add(1)
	var told []Event
	for i := range k.nodes {
		m := &k.nodes[i]
		t := q.words[i]
		switch {
		case ours:
			m.held, m.heldFor = 0, nil
			k.rebase[i].Store(true)
		case t.jump != 0: // theirs, or nobody's for certain: then it is left out by us alone
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
		k.ourClock(cmp.Or(largest, q.jump))
	}
	for _, ev := range told {
		k.events.emit(evClockStepped, ev)
	}
	k.call()
}

// ourClock draws the consequences of our own clock having stood still, or run at a wrong rate: it is put right, no new
// lock is taken for a guard, and what is watched is watched anew.
func (k *keeper) ourClock(jump time.Duration) {
	if jump > 0 {
		k.clock.correct(jump)
	}
	now := k.clock.mono()
	k.barred.Store(int64(now + k.watch))
	k.jumped()
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

package redlock

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// maxStreak is how long a process may hand a resource from one of its callers to the next while others wait for it
	// elsewhere, and streakPause for how long, at most, it lets them go first then.
	maxStreak   = 20 * time.Millisecond
	streakPause = 8 * time.Millisecond
	// rivalsFor is how long the word of a release that others had heard of it counts.
	rivalsFor = 50 * time.Millisecond
	// lineIdle is how long a line is kept, and listened for, while nobody waits in it.
	lineIdle = time.Second
	// crowded is for how many acquires after a split vote the nodes are asked one first.
	crowded = 16
	// lookEvery is the longest time between two looks at the nodes for what nobody has told us of, and lookJitter what
	// is taken off it at most.
	lookEvery  = time.Second
	lookJitter = lookEvery / 5
)

// lines are the waiting calls of a pool. Those that want one resource stand in a line, first come, first served, and
// only the first asks the nodes.
//
//	Lock -> at the end of the line -> first: ask -> won: leaves, the next is first, and waits for this lock to end
//	                                         -> denied: hear of releases, and ask again once enough nodes are free
//	Unlock -> releases are queued -> the first of the line asks at once, right behind them
//
// A line exists while somebody waits in it, and for a moment longer where others were heard to wait elsewhere.
type lines struct {
	q         *quorum // set by newLines, then read-only, like the fields of this group
	most      int     // who may wait in one line; 0: any number
	listeners []*listener
	run       func(func()) // starts a goroutine that Close waits for
	stir      chan struct{}

	mu     sync.Mutex // guards the fields below, all lines, and what waiters share with others
	byKey  map[string]*line
	looked bool // the goroutine that looks has begun
}

type line struct {
	key       string
	waiting   []*waiter
	several   int           // how many of them want other resources too
	busy      *hold         // the lock of this process that is in the way, where one left the line with it
	streak    time.Duration // since when this process has the resource, one caller after the other; 0 where it has not
	rivals    time.Duration // when others last heard of a release of ours; 0: never
	last      *QuorumError  // why the last call that asked for this resource alone did not get it
	crowd     int           // for how many acquires one node is still to be asked first
	listening bool
	idle      time.Duration // since when nobody has been waiting
}

func newLines(q *quorum, most int, run func(func()), ctx context.Context) *lines {
	ls := &lines{q: q, most: most, run: run, stir: make(chan struct{}, 1), byKey: map[string]*line{}}
	for _, n := range q.nodes {
		l := newListener(n)
		l.ctx, l.run, l.told, l.heard = ctx, run, ls.hint, ls.heard
		ls.listeners = append(ls.listeners, l)
	}
	q.freed, q.told = ls.freed, ls.others
	return ls
}

// enter puts a call at the end of the lines of all its resources, or of none where one is full.
func (ls *lines) enter(w *waiter) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, key := range w.keys {
		if l := ls.byKey[key]; ls.most > 0 && l != nil && len(l.waiting) >= ls.most {
			return tooManyWaiters(ls.most, w.resources[i])
		}
	}
	for _, key := range w.keys {
		l := ls.lineLocked(key)
		l.waiting = append(l.waiting, w)
		w.at = append(w.at, l)
		if len(w.keys) > 1 {
			l.several++
		}
	}
	return nil
}

// headLocked is the call whose turn it is in a line: the first that nothing keeps from its turn elsewhere. So a call
// for several resources never stands in the way of those that want one of them while it waits for another. nil if there is
// none. ls.mu must be held.
func (l *line) headLocked() *waiter {
	for _, w := range l.waiting {
		if len(w.keys) == 1 || !w.stuckLocked(l) {
			return w
		}
	}
	return nil
}

// pokeLocked wakes the call whose turn it is. ls.mu must be held.
func (l *line) pokeLocked() {
	if w := l.headLocked(); w != nil {
		w.poke()
	}
}

// lineLocked is the line of a key. ls.mu must be held.
func (ls *lines) lineLocked(key string) *line {
	l := ls.byKey[key]
	if l == nil {
		l = &line{key: key}
		ls.byKey[key] = l
	}
	return l
}

// leave takes a call out of its lines, with the lock that it got, or nil. Whoever is first now goes on.
func (ls *lines) leave(w *waiter, got *hold) {
	now := ls.q.clock.mono()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range w.at {
		for i, each := range l.waiting {
			if each == w {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				if len(l.waiting) < cap(l.waiting)/4 {
					l.waiting = append(make([]*waiter, 0, 2*len(l.waiting)), l.waiting...)
				}
				break
			}
		}
		if len(w.keys) > 1 {
			l.several--
		}
		if got != nil {
			if l.streak == 0 {
				l.streak = now
			}
			l.crowd = max(0, l.crowd-1)
			l.last = nil
		}
		l.idle = now
		switch {
		case len(l.waiting) == 0 && !l.keptLocked(now):
			delete(ls.byKey, l.key)
			continue
		case len(l.waiting) > 0 && got != nil:
			l.busy = got
		}
	}
	for _, l := range w.at {
		l.pokeLocked()
	}
	w.at = nil
}

// keptLocked says whether a line without waiters is worth remembering. ls.mu must be held.
func (l *line) keptLocked(now time.Duration) bool {
	return now-l.idle < lineIdle && (l.listening || l.rivals > 0 && now-l.rivals < lineIdle)
}

// freed is told that a lock has ended, by whatever end, when its releases are queued. Whoever is first in a line asks at
// once: its acquire leaves with the releases, in the same pipelines, and is the first that the nodes see behind them.
func (ls *lines) freed(h *hold) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.byKey) == 0 {
		return
	}
	now := ls.q.clock.now()
	for _, key := range h.keys {
		if l := ls.byKey[key]; l != nil && l.busy == h {
			l.busy = nil
		}
	}
	for _, key := range h.keys {
		l := ls.byKey[key]
		if l == nil {
			continue
		}
		if l.several > 0 {
			for i := range ls.q.nodes {
				for _, w := range l.waiting {
					if len(w.keys) > 1 {
						w.hearLocked(i, key)
					}
				}
			}
		}
		w := l.headLocked()
		if w == nil {
			continue
		}
		if l.restLocked(now.mono) {
			w.rest = now.mono + streakPause/2 + rand.N(streakPause/2)
		}
		w.freeLocked(key, now)
	}
}

// restLocked says whether it is time to let others go first, and begins a new streak if it is. ls.mu must be held.
func (l *line) restLocked(now time.Duration) bool {
	if l.rivals == 0 || now-l.rivals > rivalsFor || l.streak == 0 || now-l.streak < maxStreak {
		return false
	}
	l.streak = 0
	return true
}

// others is told how many subscribers a node has told of a release of these keys; -1: it refuses to tell anybody.
func (ls *lines) others(node int, keys []string, count int) {
	if count < 0 {
		ls.listeners[node].unheard()
		return
	}
	now := ls.q.clock.mono()
	for _, key := range keys {
		ours := 0
		if ls.listeners[node].asked(key) {
			ours = 1
		}
		if count <= ours {
			continue
		}
		ls.mu.Lock()
		l := ls.lineLocked(key)
		if l.rivals = now; len(l.waiting) == 0 {
			l.idle = now
		}
		ls.lookLocked()
		ls.mu.Unlock()
	}
}

// hint is told of a release on one node, or of the place in a fair queue whose turn it is there.
func (ls *lines) hint(node int, key, text string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.byKey[key]; l != nil {
		l.hintLocked(node, parseHint(text))
	}
}

// hintLocked passes a hint on: to the call whose turn it is, and to those for several resources, who count it for when it
// will be theirs. ls.mu must be held.
func (l *line) hintLocked(node int, h hint) {
	if l.several > 0 && h.first == "" {
		for _, w := range l.waiting {
			if len(w.keys) > 1 {
				w.hearLocked(node, l.key)
			}
		}
	}
	if w := l.headLocked(); w != nil {
		w.hintLocked(node, l.key, h)
	}
}

// listen has the listeners hear of a call's resources from now on. What they missed before is asked for when they do.
func (ls *lines) listen(w *waiter) {
	ls.mu.Lock()
	var keys []string
	for _, l := range w.at {
		if !l.listening {
			l.listening = true
			keys = append(keys, l.key)
		}
	}
	if len(keys) > 0 {
		for _, l := range ls.listeners {
			l.subscribe(keys, true)
		}
	}
	ls.lookLocked()
	ls.mu.Unlock()
}

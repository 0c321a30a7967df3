package redlock

import (
	"math/rand/v2"
	"slices"
	"time"
)

// What nobody has told us of: messages get lost, and holders die.

// lookLocked has the goroutine that looks begin, or go on. ls.mu must be held.
func (ls *lines) lookLocked() {
	if !ls.looked {
		ls.looked = true
		ls.run(ls.look)
	}
	select {
	case ls.stir <- struct{}{}:
	default:
	}
}

// look runs one goroutine, which ends with the pool. While there are lines it asks the nodes, every now and then, for how
// long the keys that somebody waits for will be there: messages get lost, and holders die or renew. And it forgets lines
// that nobody uses.
func (ls *lines) look() {
	timer := time.NewTimer(forever)
	defer timer.Stop()
	for {
		select {
		case <-ls.stir:
		case <-ls.q.closed:
			return
		}
		timer.Reset(lookEvery - rand.N(lookJitter))
		select {
		case <-timer.C:
		case <-ls.q.closed:
			return
		}
		some := ls.some()
		keys, led := ls.sweep()
		for i := range ls.q.nodes {
			switch {
			case slices.Contains(some, i):
				ls.lookAt(i, keys)
			case len(led[i]) > 0:
				ls.lookAt(i, led[i])
			}
		}
	}
}

// some are as many nodes as an acquire needs, others each time: what is free on all of them is worth asking for.
func (ls *lines) some() []int {
	var up []int
	for _, i := range rand.Perm(len(ls.q.nodes)) {
		if ls.q.nodes[i].isUp() {
			up = append(up, i)
		}
	}
	return up[:min(len(up), ls.q.need)]
}

// sweep forgets lines that nobody uses, and returns the keys that a call waits for the nodes to free, and by node those
// for which it is to be asked first.
func (ls *lines) sweep() (keys []string, led [][]string) {
	led = make([][]string, len(ls.q.nodes))
	var stale []string
	now := ls.q.clock.mono()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.byKey {
		switch {
		case len(l.waiting) > 0:
			if l.busy == nil {
				keys = append(keys, key)
				if w := l.headLocked(); w != nil && w.leader >= 0 {
					led[w.leader] = append(led[w.leader], key)
				}
			}
		case !l.keptLocked(now) || now-l.idle >= lineIdle:
			if l.listening {
				stale = append(stale, key)
			}
			delete(ls.byKey, key)
		}
	}
	if len(ls.byKey) > 0 {
		select {
		case ls.stir <- struct{}{}:
		default:
		}
	}
	if len(stale) > 0 {
		for _, l := range ls.listeners {
			l.subscribe(stale, false)
		}
	}
	return keys, led
}

// heard is told of keys whose releases on a node reach us from now on. What happened before has to be asked for.
func (ls *lines) heard(node int, keys []string) {
	ls.lookAt(node, keys)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, key := range keys {
		l := ls.byKey[key]
		if l == nil {
			continue
		}
		if w := l.headLocked(); w != nil {
			w.rejoin = true
			w.poke()
		}
	}
}

// lookAt asks a node how long the keys will be there.
func (ls *lines) lookAt(node int, keys []string) {
	for len(keys) > 0 {
		k := 0
		for size := 0; k < min(len(keys), maxSubscribe) && size < maxBatchBytes/4; k++ {
			size += len(keys[k])
		}
		ls.q.peek(node, keys[:k:k], ls.q.nodes[node].timeout, (*looker)(ls))
		keys = keys[k:]
	}
	ls.q.nodes[node].nudge()
}

// looker takes the answers for what lines have looked at.
type looker lines

func (*looker) sending(*request) bool { return true }

func (k *looker) answered(r *request, v vote) {
	if v.kind != voteGrant {
		return
	}
	ls := (*lines)(k)
	now := ls.q.clock.mono()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, key := range r.keys {
		l := ls.byKey[key]
		if l == nil {
			continue
		}
		w := l.headLocked()
		switch {
		case r.left[i] == -2:
			l.hintLocked(r.node, hint{})
		case w != nil && r.left[i] >= 0:
			w.seenLocked(r.node, key, now+time.Duration(min(r.left[i]+1, int64(forever/time.Millisecond)))*time.Millisecond)
		}
	}
}

package redlock

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a node's marker is looked after: by the node's own goroutine, beside its batches and never in them.

const (
	lookWhileSteady   = 10 * time.Second     // between looks at INFO and the marker of a steady node
	lookWhileUnsteady = time.Second          // of one that is not; another client may have made it steady
	peekPause         = 2 * time.Millisecond // between looks while another client is about to change the marker
	maxPeeks          = 5                    // at a nonce that its writer may be about to flag as new
)

// look is one reading of a server's INFO and marker, on the connection that carries the batches.
type look struct {
	info      serverInfo
	marker    string
	witnessed bool   // the witness is there, as far as we may know
	err       error  // the server refused to show them: what to grant
	turn      uint64 // of the keeper, when it began; 0: not known
}

// lookCommands ask for a look; readLook reads their replies.
func (n *node) lookCommands() []redis.Cmder {
	ctx := context.Background()
	return []redis.Cmder{redis.NewStringCmd(ctx, "info"), redis.NewStringCmd(ctx, "hget", n.state, "marker"),
		redis.NewBoolSliceCmd(ctx, "script", "exists", n.witness.sha)}
}

func readLook(cmds []redis.Cmder) look {
	info, err := cmds[0].(*redis.StringCmd).Result()
	if err != nil {
		why := "INFO failed: " + err.Error()
		if strings.HasPrefix(err.Error(), "NOPERM") || strings.Contains(err.Error(), "unknown command") {
			why = "may not call INFO (" + err.Error() + "): grant its user +info, or use WithRestartGuard(0)"
		}
		return look{err: reason(why)}
	}
	m, err := cmds[1].(*redis.StringCmd).Result()
	if err != nil && err != redis.Nil {
		return look{info: parseInfo(info), err: reason("its marker cannot be read: " + err.Error())}
	}
	there, err := cmds[2].(*redis.BoolSliceCmd).Result()
	return look{info: parseInfo(info), marker: m, witnessed: err != nil || len(there) != 1 || there[0]}
}

// tended is what the node's goroutine knows of its marker.
type tended struct {
	seen   *look         // a look that has not been considered yet
	run    string        // run id of this connection
	nonce  string        // the marker that is being watched; empty if none
	since  time.Duration // from when on; monotonic since the epoch
	due    time.Duration // when to tend next; monotonic since the epoch
	later  time.Duration // no marker is written before, on a new connection either; monotonic
	looked time.Duration // when the last look began
	turn   uint64        // the last turn of the keeper that was looked at
	peeks  int
	fails  int  // swaps in a row that somebody else was before
	told   bool // the observer knows that it has no vote
}

// next is when to look again: never at once, so that nothing can make a node be asked without end.
func (t *tended) next() time.Duration { return max(t.due, t.looked+peekPause) }

// tendDue says whether there may be something to do for the marker. It is asked after every batch.
func (n *node) tendDue(now time.Duration) bool {
	return n.keeper.guard > 0 && n.conn != nil && (n.tended.seen != nil || now >= n.tended.next() || n.tended.turn != n.keeper.turn.Load())
}

// tend takes the next step for the node's marker. Each step ends with what is known, and when to come back.
func (n *node) tend() {
	k, t := n.keeper, &n.tended
	now := n.clock.mono()
	t.turn = k.turn.Load()

	// 1. Whose clock went wrong, where one did.
	if inquiry := k.inquiry.Load(); inquiry != nil {
		k.conclude(inquiry, now)
		if k.inquiry.Load() != nil {
			n.stale = n.stale || !inquiry.heard(n.index)
			t.due = min(t.due, inquiry.opened+k.timeout)
		}
	}

	n.stale = n.stale || k.rebase[n.index].Load() // all at once, so that they can be compared

	// 2. Look, where it is time.
	if t.seen == nil && now >= t.next() {
		t.looked = now
		cmds := n.lookCommands()
		if !n.errand(cmds...) {
			return
		}
		seen := readLook(cmds)
		seen.turn = t.turn
		t.seen = &seen
	}
	if seen := t.seen; seen != nil {
		t.seen = nil
		n.consider(*seen)
	}
	if n.conn == nil {
		return
	}

	// 3. Do what is due for the marker.
	if n.review(); n.conn == nil {
		return
	}

	// 4. Tell the counters to a node that lost its own.
	if n.marker != noMarker && k.surveyed(n.index) {
		n.confide()
	}
}

// errand runs commands of our own in one pipeline. On false the connection is gone.
func (n *node) errand(cmds ...redis.Cmder) bool {
	n.cmds = append(n.cmds[:0], cmds...)
	err, _ := n.exchange(n.clock.mono())
	return n.survives(err)
}

// consider draws the consequences of a look.
func (n *node) consider(seen look) {
	t := &n.tended
	t.due = n.clock.mono() + lookWhileSteady
	m := parseMarker(seen.marker)
	switch {
	case !n.fit(seen):
	case seen.marker != "" && m.run == t.run && !seen.witnessed && !n.rewitness():
	case seen.marker == "" || m.run != t.run:
		n.unsettle(seen.marker)
	case m.state == steadyWord:
		n.steadied()
	default:
		n.observe(seen.marker, seen.turn)
	}
}

// rewitness loads the witness again: a marker of this run without it means SCRIPT FLUSH, and a flush of the data after
// that would look like a first use. On false the connection is gone.
func (n *node) rewitness() bool {
	return n.errand(redis.NewStringCmd(context.Background(), "script", "load", n.witness.source))
}

// fit notes whose run a look has shown, and whether that server may vote at all.
func (n *node) fit(seen look) bool {
	k, t := n.keeper, &n.tended
	now := n.clock.mono()
	t.run = seen.info.run
	k.report(n.index, func(mem *memory) {
		mem.run = seen.info.run
		mem.old = now + k.watch + time.Second - seen.info.uptime // INFO counts whole seconds
	})
	fault := cmp.Or(seen.info.fault, seen.err) // a cluster node refuses our commands because it is one
	if m := parseMarker(seen.marker); fault == nil && seen.marker != "" && m.settings != k.settings {
		fault = reason("its clients have agreed on " + quoteResource(m.settings) + ", this pool is set to " + quoteResource(k.settings) +
			": use the same nodes, WithQuorum and WithRestartGuard for all clients, or another key prefix")
	}
	if twins := k.twins(n.index); fault == nil && len(twins) > 0 {
		fault = reason("it is the same server as " + nameResources(twins) + ": one server must not vote twice")
	}
	if fault != nil {
		n.refuse(fault)
	}
	return fault == nil
}

// refuse keeps a server that must not vote out of every round. A nonce that is being watched there goes on being watched:
// the next look shows whether it has changed meanwhile.
func (n *node) refuse(why error) {
	n.tended.due = n.clock.mono() + lookWhileUnsteady
	n.became(unfit, why, func(m *memory) { m.reason = why })
}

// steadied notes that the marker says steady.
func (n *node) steadied() {
	n.tended.nonce, n.tended.peeks, n.tended.fails = "", 0, 0
	n.became(steady, nil, func(m *memory) { m.first = false })
}

// became reports a phase, tells the observer of a change for the worse or back, and settles what requests ask for.
func (n *node) became(p memoryPhase, why error, change func(*memory)) {
	k := n.keeper
	k.report(n.index, func(m *memory) {
		m.phase = p
		change(m)
	})
	n.setMarker()
	t := &n.tended
	switch {
	case p == steady && t.told:
		t.told = false
		n.events.emit(evNodeSteady, Event{Node: n.name})
	case p != steady && !t.told && !(p == fresh && k.oldEnough()): // a first use is over in a moment
		t.told = true
		n.events.emit(evNodeUnsteady, Event{Node: n.name, Err: cmp.Or(why, k.voteless(n.index))})
	}
}

// setMarker says what requests ask the node for: the marker of a steady node in its present run, or, where we know why
// it must not vote, one that no node has.
func (n *node) setMarker() {
	k := n.keeper
	k.mu.Lock()
	m := k.nodes[n.index]
	k.mu.Unlock()
	n.marker = marker{k.settings, n.tended.run, steadyWord}.String()
	if m.phase == unfit || m.stepped || n.clock.mono() < m.held {
		n.marker = noMarker
	}
}

// unsettle gives a node whose marker is missing, of another run or not to be believed any more a fresh nonce.
func (n *node) unsettle(expected string) {
	k, t := n.keeper, &n.tended
	m := marker{k.settings, t.run, nonceWord + newNonce()}
	k.report(n.index, func(m *memory) {
		if m.phase == steady && !m.stepped { // it is not what we believed
			m.phase, m.until = watching, n.clock.mono()+k.watch
		}
	})
	won, known, ok := n.swap(expected, m.String(), nil)
	switch {
	case !ok:
		return
	case !won: // somebody else was first
		t.due = n.again()
		return
	case known:
		n.observe(m.String(), 0)
		return
	}
	// The process had no marker before this one: say so, for if that is so everywhere, there is nothing to wait for.
	fresh := m
	fresh.state = newWord + m.state[len(nonceWord):]
	if won, _, ok = n.swap(m.String(), fresh.String(), nil); ok && won {
		n.observe(fresh.String(), 0)
	} else {
		t.due = n.again()
	}
}

// again is when to look after a swap that came too late: soon, and where that goes on, once a second.
func (n *node) again() time.Duration {
	n.tended.fails++
	return n.clock.mono() + min(lookWhileUnsteady, peekPause<<min(n.tended.fails, 10))
}

// observe watches a nonce, its own or another client's. The watch begins when it is first seen, and anew when another
// takes its place.
func (n *node) observe(text string, turn uint64) {
	k, t := n.keeper, &n.tended
	now := n.clock.mono()
	m := parseMarker(text)
	if t.nonce != text {
		if !m.isNew() && t.peeks < maxPeeks && !k.ready.Load() {
			t.peeks++
			t.due = now + peekPause
			return
		}
		t.nonce, t.since, turn, t.fails = text, now, 0, 0
		k.dropSurvey(n.index) // its counters are those of before
		alone := !k.couldBeSteady()
		k.report(n.index, func(m *memory) { m.first, m.alone = false, alone })
	}
	p := watching
	if m.isNew() {
		p = fresh
	}
	n.became(p, nil, func(mem *memory) { mem.until, mem.stepped, mem.looked = t.since+k.watch, false, turn })
}

// review heals a watched node once its guard is over, and looks after what other nodes, or its clock, have changed.
func (n *node) review() {
	k, t := n.keeper, &n.tended
	now := n.clock.mono()
	k.mu.Lock()
	m := k.nodes[n.index]
	k.mu.Unlock()
	steadyMarker := marker{k.settings, t.run, steadyWord}.String()
	firstUse, lookAgain := false, false
	if m.phase == fresh {
		firstUse, lookAgain = k.firstUse(n.index)
	}
	switch {
	case m.phase == steady && len(k.twins(n.index)) > 0:
		t.due = now
	case m.phase == steady && m.stepped:
		n.unsettle(steadyMarker)
	case k.inquiry.Load() != nil || k.barredFor() > 0 && m.phase != steady: // a guard cannot be measured by a wrong clock
		t.due = min(t.due, now+max(peekPause, min(lookWhileUnsteady, k.barredFor())))
	case firstUse:
		if n.heal(t.nonce, steadyMarker, nil) && n.index == 0 { // once is enough
			n.events.emit(evNodeSteady, Event{Node: n.name, Err: errFirstUse})
		}
	case lookAgain:
		t.due = now
	case t.nonce == "" || m.phase != watching && m.phase != fresh:
	case now-t.since >= k.watch && now >= m.held:
		k.openSurvey(n.index)
		if top, short, done := k.surveyFor(n.index, now-t.since >= 2*k.watch); done {
			if n.heal(t.nonce, steadyMarker, top) && short {
				n.events.emit(evWarning, Event{Node: n.name, Err: errFencesByClock})
			}
		} else {
			t.due = min(t.due, now+k.timeout)
		}
	default:
		t.due = min(t.due, now+lookWhileUnsteady)
		if over := t.since + k.watch; over > now {
			t.due = min(t.due, over)
		}
		if m.phase == fresh && m.old > now {
			t.due = min(t.due, m.old)
		} else if m.phase == fresh && !k.ready.Load() {
			t.due = min(t.due, now+peekPause) // another client makes them steady
		}
	}
	if m.held > now {
		t.due = min(t.due, m.held)
	}
	n.setMarker()
}

// acquaint takes in what a new connection has shown, before anything is asked on it.
func (n *node) acquaint(found checked) {
	t := &n.tended
	if n.keeper.guard == 0 {
		n.keeper.report(n.index, func(m *memory) { m.phase = steady })
		return
	}
	if n.clock.mono() < t.later {
		t.due = t.later // the connection before was given up over this very marker
	} else if n.fit(found.look) {
		t.seen = &found.look
		n.setMarker()
	}
	n.testify(found.clock)
}

// doubtMarker has the marker looked at again because a steady node's requests found another.
func (n *node) doubtMarker() {
	k := n.keeper
	k.mu.Lock()
	believed := k.nodes[n.index].phase == steady
	k.mu.Unlock()
	if believed && n.marker != noMarker {
		n.tended.due = 0
	}
}

package main

import (
	"fmt"
	"strings"
)

// The undo: one token on one node, and whether its key stays away once the client has crossed the node off its undo
// list. Requests wait in the socket buffers of a frozen server, even those of a connection that the client has given
// up, so the two connections are served in any order; each by itself is first in, first out.

// timedUndo are the numbers of a model, and the rules of the protocol that it breaks.
type timedUndo struct {
	ttl, latest uint8

	noLatest    bool // the node creates a key for a request of any age
	oneRelease  bool // any confirmed release is enough, also on another connection than the request
	byReply     bool // a release counts by the time of its reply, not by that of its sending
	stillRenews bool // a handle that was unlocked goes on with renewals, which set a missing key
	giveUpEarly bool // an entry is dropped with the latest second, not a TTL after it
	prolongs    bool // a renewal prolongs a key that is there at any age, as it does in fact
}

type timedUndoState struct {
	dead   bool  // the handle was unlocked or lost, or its round failed
	done   bool  // the client has crossed the node off
	key    uint8 // how long the key of this token will stay; 0: it is not there
	newest uint8 // age of the last request that was sent and may create the key
	moved  bool  // such a request left on a connection that was given up
	reply  uint8 // of a release, on its way back: none, of any release, of one that settles the matter
	lines  [2][3]timedRequest
}

// timedRequest waits in a connection: a release, or one that creates the key and is so old. Line 0 is the connection
// that was given up, line 1 the present one.
type timedRequest struct{ kind, age uint8 }

const (
	timedNothing = 0
	timedCreate  = 1
	timedRelease = 2

	timedReplied = 1
	timedSettled = 2
)

func (r timedUndo) initial() []timedUndoState { return []timedUndoState{{}} }

func (r timedUndo) wrong(s timedUndoState) string {
	if s.done && s.key > 0 {
		return "a key of a token that was undone is there"
	}
	return ""
}

func (r timedUndo) next(s timedUndoState, emit func(string, timedUndoState)) {
	emit("a tick", r.tick(s))
	r.client(s, emit)
	for line := range s.lines {
		r.serve(s, line, emit)
	}
	if s.reply == timedNothing {
		return
	}
	to := s
	to.reply = timedNothing
	emit("the reply of the release is lost", to)
	late := s.newest > r.latest
	to.done = s.reply == timedSettled || r.oneRelease || r.byReply && late
	emit("the release is confirmed", to)
}

func (r timedUndo) tick(s timedUndoState) timedUndoState {
	s.key = less(s.key)
	s.newest = min(s.newest+1, r.latest+r.ttl+1)
	for line := range s.lines {
		for i := range s.lines[line] {
			if q := &s.lines[line][i]; q.kind == timedCreate {
				q.age = min(q.age+1, r.latest+1)
			}
		}
	}
	return s
}

// client is what the client can do by itself.
func (r timedUndo) client(s timedUndoState, emit func(string, timedUndoState)) {
	if to, ok := s.send(timedRequest{kind: timedCreate}); ok && !s.dead {
		to.newest = 0
		emit("the client asks for the key", to)
	}
	if to, ok := s.send(timedRequest{kind: timedCreate}); ok && s.dead && r.stillRenews {
		emit("the dead handle renews", to)
	}
	if to := s; !s.dead {
		to.dead = true
		emit("the handle ends", to)
	}
	if s.lines[0][0].kind == timedNothing { // the model has room for one old connection
		to := s
		to.lines[0], to.lines[1] = s.lines[1], [3]timedRequest{}
		to.moved = true
		emit("the client gives its connection up and makes another", to)
	}
	if !s.dead || s.done {
		return
	}
	if to, ok := s.send(timedRequest{kind: timedRelease}); ok {
		if to.reply = s.reply; s.newest > r.latest {
			to.lines[1] = mark(to.lines[1])
		}
		emit("the client sends a release", to)
	}
	if to := s; s.newest > r.latest+r.ttl || r.giveUpEarly && s.newest > r.latest {
		to.done = true
		emit("the client waits no longer, the key must have run out", to)
	}
}

// mark notes in the release that was sent last that no request before it can create the key any more: its age is
// not used otherwise.
func mark(line [3]timedRequest) [3]timedRequest {
	for i := len(line) - 1; i >= 0; i-- {
		if line[i].kind == timedRelease {
			line[i].age = 1
			break
		}
	}
	return line
}

// send puts a request into the present connection, if there is room in the model.
func (s timedUndoState) send(q timedRequest) (timedUndoState, bool) {
	for i := range s.lines[1] {
		if s.lines[1][i].kind == timedNothing {
			s.lines[1][i] = q
			return s, true
		}
	}
	return s, false
}

// serve lets the node do the first request of a connection, or drop what is in one that was given up.
func (r timedUndo) serve(s timedUndoState, line int, emit func(string, timedUndoState)) {
	q := s.lines[line][0]
	if q.kind == timedNothing {
		return
	}
	to := s
	copy(to.lines[line][:], s.lines[line][1:])
	to.lines[line][2] = timedRequest{}
	name := [...]string{"the old", "the present"}[line]
	switch {
	case q.kind == timedRelease:
		to.key = 0
		if line == 1 {
			to.reply = max(s.reply, timedReplied)
			if q.age == 1 || !s.moved {
				to.reply = timedSettled
			}
		}
		emit(fmt.Sprintf("the node does a release of %s connection", name), to)
	case q.age <= r.latest || r.noLatest || r.prolongs && s.key > 0:
		to.key = r.ttl
		emit(fmt.Sprintf("the node does a request of %s connection: the key is there", name), to)
	default:
		emit(fmt.Sprintf("the node refuses a request of %s connection: late", name), to)
	}
	if line == 0 {
		to := s
		to.lines[0] = [3]timedRequest{}
		emit("the node notices that the old connection is closed", to)
	}
}

// String is what traces show.
func (s timedUndoState) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "key for %d, newest request %d old", s.key, s.newest)
	if s.done {
		b.WriteString(", crossed off")
	}
	for line, name := range [...]string{"old", "present"} {
		for _, q := range s.lines[line] {
			if kind := [...]string{"", "request", "release"}[q.kind]; kind != "" {
				fmt.Fprintf(&b, "; %s connection: %s", name, kind)
			}
		}
	}
	return b.String()
}

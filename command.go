package redlock

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// slot is a reusable script call on one key: its arguments point into it, so that the hot path allocates none.
type slot struct {
	cmd    *redis.Cmd
	key    string
	token  string
	ttl    int64
	latest int64
	marker string
	fence  string
	stripe string
}

func newSlot(o op, state, channel string) *slot {
	s := &slot{}
	args := []any{"evalsha", scripts[o].sha, "1", &s.key, &s.token}
	switch {
	case o == opRelease:
		args = append(args, channel)
	case o.mayCreate() && state == "": // for the benchmark of what fences, markers and clocks cost
		args = append(args, &s.ttl, &s.latest)
	case o.mayCreate():
		args = []any{"evalsha", scripts[o].sha, "2", &s.key, state, &s.token, &s.ttl, &s.latest, &s.marker, &s.fence, &s.stripe}
	}
	s.cmd = redis.NewCmd(context.Background(), args...)
	return s
}

// maxTogether is how many requests one call of the batch script takes: more would keep a server from its other clients
// for longer than it saves.
const maxTogether = 64

// place is where the answer to a request will be found: in the reply of a command, or, for requests that are asked
// together, in one element of it.
type place struct {
	cmd   int
	index int // -1: the reply is the answer
}

// pack makes the commands for a batch, in its order: requests of one key that stand together become one call.
func (n *node) pack(batch []*request) {
	n.cmds, n.places, n.used = n.cmds[:0], n.places[:0], [opCount]int{}
	calls := 0
	for i := 0; i < len(batch); {
		k, latest := i, int64(0)
		for k < len(batch) && k-i < maxTogether && n.joins(&latest, batch[k]) {
			k++
		}
		if k-i < 2 {
			n.places = append(n.places, place{len(n.cmds), -1})
			n.cmds = append(n.cmds, n.command(batch[i]))
			i++
			continue
		}
		for at := range k - i {
			n.places = append(n.places, place{len(n.cmds), at})
		}
		n.cmds = append(n.cmds, n.together(calls, batch[i:k]))
		calls++
		i = k
	}
}

// joins says whether a request can be asked together with those before it. They share the last second of the first that
// has one: a request whose own is another, for its node timeout, would be refused too early or applied too late. A
// second less than its own is the one that was added to it.
func (n *node) joins(latest *int64, r *request) bool {
	switch {
	case len(r.keys) != 1 || n.state == "" || !r.op.ofLocks():
		return false
	case !r.op.mayCreate():
		return true
	case *latest == 0:
		*latest = r.latest
	}
	return r.latest == *latest || r.latest == *latest+1
}

// together is the call of the batch script for requests of one key. Its arguments point into the requests, and the list
// of them is used again, so that a request costs no memory here. k is how many such calls the pipeline has already.
func (n *node) together(k int, rs []*request) redis.Cmder {
	if k == len(n.calls) {
		n.calls = append(n.calls, make([]any, 0, 6+6*maxTogether))
	}
	args := append(n.calls[k][:0], "evalsha", batchScript.sha, len(rs)+1)
	var latest any = "0" // where nothing but releases asks for it
	for i := range rs {
		args = append(args, &rs[i].keys[0])
		if r := rs[len(rs)-1-i]; r.op.mayCreate() {
			latest = &r.latest // in the end the first one's
		}
	}
	args = append(args, &n.state, &n.marker, latest)
	for _, r := range rs {
		switch r.op {
		case opAcquire:
			args = append(args, &r.millis, &r.token, &r.fence, &r.stripes[0])
		case opRenew:
			args = append(args, "renew", &r.token, &r.fence, &r.stripes[0], &r.millis)
		default:
			args = append(args, "release", &r.token)
		}
	}
	n.calls[k] = args
	return redis.NewCmd(context.Background(), args...)
}

// answer finds the answer to a request of the batch: the reply and, for a grant in a batch, the server's time. ok is
// false where it has none, or lacked its script and is to be sent again.
func (n *node) answer(i int, r *request) (v vote, ok bool) {
	at := n.places[i]
	cmd := n.cmds[at.cmd].(*redis.Cmd)
	err := cmd.Err()
	switch {
	case err != nil && !isServerError(err) || isNoScript(err) && !r.resent:
		return vote{}, false
	case at.index < 0 || err != nil:
		return parse(r, cmd.Val(), err), true
	}
	list, _ := cmd.Val().([]any)
	var micros int64
	if len(list) > at.index+1 {
		micros, _ = list[len(list)-1].(int64)
	}
	if micros <= 0 || micros > maxMicros {
		return noAnswer(reasonMiscount), true
	}
	return parseTogether(r, list[at.index], micros), true
}

// parseTogether reads one answer of the batch script.
func parseTogether(r *request, val any, micros int64) vote {
	switch v := val.(type) {
	case string:
		return parseText(r, v)
	case int64:
		if r.op == opAcquire && v == 1 {
			return parse(r, micros, nil)
		}
		if r.op == opAcquire && v > 0 {
			return noAnswer(reasonMiscount)
		}
	case []any:
		if r.op == opAcquire && len(v) == 2 && v[0] == any(int64(0)) {
			return parse(r, []any{v[0], micros, v[1]}, nil)
		}
	}
	return parse(r, val, nil)
}

// letGo drops what the commands of a pipeline pointed to.
func (n *node) letGo() {
	for op, k := range n.used {
		for _, s := range n.slots[op][:k] {
			s.key, s.token = "", ""
		}
	}
	for _, args := range n.calls {
		clear(args)
	}
}

// command is the script call for one request.
func (n *node) command(r *request) redis.Cmder {
	switch {
	case r.op == opPeek:
		return newCommand(r.op, r.keys)
	case r.op == opJoin:
		return newCommand(r.op, r.keys, r.token, r.millis, r.latest)
	case r.op == opLeave:
		return newCommand(r.op, r.keys, append([]any{r.token}, anys(r.channels)...)...)
	case len(r.keys) > 1 && !r.op.mayCreate():
		return newCommand(r.op, r.keys, r.token, n.channel)
	case len(r.keys) > 1:
		args := []any{r.token, r.millis, r.latest, n.marker, r.fence}
		for _, s := range r.stripes {
			args = append(args, s)
		}
		return newCommand(r.op, append(slices.Clone(r.keys), n.state), args...)
	}
	k := n.used[r.op]
	n.used[r.op]++
	if k == len(n.slots[r.op]) {
		n.slots[r.op] = append(n.slots[r.op], newSlot(r.op, n.state, n.channel))
	}
	s := n.slots[r.op][k]
	s.key, s.token = r.keys[0], r.token
	if r.op.mayCreate() {
		s.ttl, s.latest, s.marker, s.fence, s.stripe = r.millis, r.latest, n.marker, r.fence, r.stripes[0]
	}
	s.cmd.SetVal(nil)
	return s.cmd
}

func anys(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}

func newCommand(o op, keys []string, args ...any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", scripts[o].sha, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return redis.NewCmd(context.Background(), append(all, args...)...)
}

// maxMicros is the largest time that a server may claim; past it, sums with durations could overflow.
const maxMicros = int64(9e15)

// parse reads a script's reply; scripts/*.lua list them all. A script error is "unknown": a script that fails half way
// has still written.
func parse(r *request, val any, err error) vote {
	if err != nil {
		return noAnswer(reasonOf(err))
	}
	switch v := val.(type) {
	case int64:
		return parseNumber(r, v)
	case string:
		if r.op.mayCreate() && strings.HasPrefix(v, markerFormat) {
			return parseText(r, v)
		}
	case []any:
		switch r.op {
		case opAcquire:
			return parseList(r, v)
		case opPeek:
			return parseLeft(r, v)
		case opJoin:
			return parsePlace(v)
		}
	}
	return noAnswer(reasonMiscount)
}

// parseLeft reads what is left of each key.
func parseLeft(r *request, list []any) vote {
	if len(list) != len(r.keys) {
		return noAnswer(reasonMiscount)
	}
	r.left = make([]int64, len(list))
	for i, each := range list {
		left, ok := each.(int64)
		if !ok || left < -2 {
			return noAnswer(reasonMiscount)
		}
		r.left[i] = left
	}
	return vote{kind: voteGrant}
}

// parsePlace reads how many are before us in a queue, and when that was so.
func parsePlace(list []any) vote {
	if len(list) == 2 {
		before, ok := list[0].(int64)
		micros, dated := list[1].(int64)
		if ok && dated && before >= 0 && micros > 0 && micros <= maxMicros {
			return vote{kind: voteGrant, count: int(min(before, math.MaxInt32)), micros: micros}
		}
	}
	return noAnswer(reasonMiscount)
}

// maxServerText is how much of a server's own words are shown.
const maxServerText = 200

// parseText reads a marker where none was expected, or what went wrong in a batch.
func parseText(r *request, text string) vote {
	if strings.HasPrefix(text, markerFormat) {
		why := reason("its clients have agreed on " + quoteResource(parseMarker(text).settings) +
			", this pool is set to WithRestartGuard(0): use the same guard for all clients, or another key prefix")
		if r.op == opAcquire {
			return vote{kind: voteUnsteady, reason: why}
		}
		return noAnswer(why) // and what it held before it holds
	}
	return noAnswer(reason(text[:min(len(text), maxServerText)]))
}

// parseList reads {0, time, fence} of a grant and {index of the key, remaining milliseconds} of a denial.
func parseList(r *request, list []any) vote {
	var v [3]int64
	if len(list) > len(v) {
		return noAnswer(reasonMiscount)
	}
	for i, each := range list {
		var ok bool
		if v[i], ok = each.(int64); !ok {
			return noAnswer(reasonMiscount)
		}
	}
	switch {
	case len(list) == 3 && v[0] == 0 && v[1] > 0 && v[1] <= maxMicros && v[2] > 0 && uint64(v[2]) <= maxFence:
		return vote{kind: voteGrant, micros: v[1], fence: uint64(v[2])}
	case len(list) == 2 && v[0] >= 1 && v[0] <= int64(len(r.keys)):
		key, ms := v[0], v[1]
		left := time.Duration(-1)
		if ms >= 0 {
			left = time.Duration(min(ms, int64(forever/time.Millisecond))) * time.Millisecond
		}
		return vote{kind: voteDenied, key: int(key) - 1, remaining: left}
	}
	return noAnswer(reasonMiscount)
}

func parseNumber(r *request, v int64) vote {
	switch o := r.op; {
	case o == opRelease && v >= -1, o == opLeave && v >= 0:
		return vote{kind: voteGrant, count: int(min(v, math.MaxInt32))}
	case o == opRenew && v == 1:
		return vote{kind: voteGrant}
	case o == opAcquire && v > 0 && v <= maxMicros && r.proposed > 0:
		return vote{kind: voteGrant, micros: v, fence: r.proposed}
	case o == opRenew && v == 0:
		return vote{kind: voteDenied, key: -1, remaining: -1}
	case o == opRenew && v == 2:
		return vote{kind: voteRefill, reason: reasonGone}
	case o.dated() && v == -1:
		return vote{kind: voteLate, reason: reasonLate}
	case o == opAcquire && v == -2, o == opRenew && v == -2:
		return vote{kind: voteUnsteady}
	case o == opRenew && v == 3:
		return vote{kind: voteUnsteadyOurs}
	case o == opAcquire && v == -3:
		return noAnswer(reasonUsedUp)
	}
	return noAnswer(reasonMiscount)
}

package redlock

import (
	"context"
	"slices"
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

func newSlot(o op, state string) *slot {
	s := &slot{}
	args := []any{"evalsha", scripts[o].sha, "1", &s.key, &s.token}
	if o.mayCreate() {
		args = []any{"evalsha", scripts[o].sha, "2", &s.key, state, &s.token, &s.ttl, &s.latest, &s.marker, &s.fence, &s.stripe}
	}
	s.cmd = redis.NewCmd(context.Background(), args...)
	return s
}

// command is the script call for r. used counts the slots taken in this pipeline.
func (n *node) command(r *request, used *[opCount]int) redis.Cmder {
	if len(r.keys) > 1 {
		if !r.op.mayCreate() {
			return newCommand(r.op, r.keys, r.token)
		}
		args := []any{r.token, millis(r.ttl), r.latest, n.marker, r.fence}
		for _, s := range r.stripes {
			args = append(args, s)
		}
		return newCommand(r.op, append(slices.Clone(r.keys), n.state), args...)
	}
	k := used[r.op]
	used[r.op]++
	if k == len(n.slots[r.op]) {
		n.slots[r.op] = append(n.slots[r.op], newSlot(r.op, n.state))
	}
	s := n.slots[r.op][k]
	s.key, s.token = r.keys[0], r.token
	if r.op.mayCreate() {
		s.ttl, s.latest, s.marker, s.fence, s.stripe = millis(r.ttl), r.latest, n.marker, r.fence, r.stripes[0]
	}
	s.cmd.SetVal(nil)
	return s.cmd
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
	case []any:
		if r.op == opAcquire {
			return parseList(r, v)
		}
	}
	return noAnswer(reasonMiscount)
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
	case o == opRelease && v >= 0, o == opRenew && v == 1:
		return vote{kind: voteGrant}
	case o == opAcquire && v > 0 && v <= maxMicros && r.proposed > 0:
		return vote{kind: voteGrant, micros: v, fence: r.proposed}
	case o == opRenew && v == 0:
		return vote{kind: voteDenied, key: -1, remaining: -1}
	case o == opRenew && v == 2:
		return vote{kind: voteRefill, reason: reasonGone}
	case o != opRelease && v == -1:
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

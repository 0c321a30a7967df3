package redlock

import (
	"context"
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
}

func newSlot(o op) *slot {
	s := &slot{}
	args := []any{"evalsha", scripts[o].sha, "1", &s.key, &s.token}
	if o.mayCreate() {
		args = append(args, &s.ttl, &s.latest)
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
		return newCommand(r.op, r.keys, r.token, millis(r.ttl), r.latest)
	}
	k := used[r.op]
	used[r.op]++
	if k == len(n.slots[r.op]) {
		n.slots[r.op] = append(n.slots[r.op], newSlot(r.op))
	}
	s := n.slots[r.op][k]
	s.key, s.token, s.ttl, s.latest = r.keys[0], r.token, millis(r.ttl), r.latest
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
		return parseNumber(r.op, v)
	case []any: // denied: {index of the key, remaining milliseconds}
		if r.op != opAcquire || len(v) != 2 {
			break
		}
		key, ok1 := v[0].(int64)
		ms, ok2 := v[1].(int64)
		if !ok1 || !ok2 || key < 1 || key > int64(len(r.keys)) {
			break
		}
		left := time.Duration(-1)
		if ms >= 0 {
			left = time.Duration(min(ms, int64(forever/time.Millisecond))) * time.Millisecond
		}
		return vote{kind: voteDenied, key: int(key) - 1, remaining: left}
	}
	return noAnswer(reasonMiscount)
}

func parseNumber(o op, v int64) vote {
	switch {
	case o == opRelease && v >= 0, o == opRenew && v == 1:
		return vote{kind: voteGrant}
	case o == opAcquire && v > 0 && v <= maxMicros:
		return vote{kind: voteGrant, micros: v}
	case o == opRenew && v == 0:
		return vote{kind: voteDenied, key: -1, remaining: -1}
	case o == opRenew && v == 2:
		return vote{kind: voteRefill, reason: reasonGone}
	case o != opRelease && v == -1:
		return vote{kind: voteLate, reason: reasonLate}
	}
	return noAnswer(reasonMiscount)
}

package redlock

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// How a marker is replaced, and how a node that lost its counters is given those of the others.

// heal makes a watched node steady: its counters are raised to those of the others, in one step with its marker.
func (n *node) heal(from, to string, counters map[string]string) bool {
	won, _, ok := n.swap(from, to, counters)
	switch {
	case !ok:
		return false
	case !won: // somebody else was first, or it forgot again
		n.tended.nonce, n.tended.due = "", n.again()
		n.keeper.report(n.index, func(m *memory) { m.first, m.looked = false, 0 })
		return false
	}
	n.steadied()
	return true
}

// What it means for the fences that no majority was there to ask for its counters.
var (
	errFencesByClock = usageError("it became steady while no majority was: only the nodes' clocks keep fences in order with earlier ones")
	errFirstUse      = usageError("first use, as all nodes are new: if there were locks before, only the nodes' clocks keep fences in order with theirs")
)

// swap replaces the marker if it is still the expected one, in one transaction with the witness. known says whether
// the server's process had the witness before. ok is false where it could not be written, or nobody knows.
func (n *node) swap(from, to string, counters map[string]string) (won, known, ok bool) {
	ctx := context.Background()
	args := []any{"evalsha", markScript.sha, 1, n.state, from, to}
	for stripe, c := range counters {
		args = append(args, stripe, c)
	}
	result := redis.NewCmd(ctx, "exec")
	cmds := []redis.Cmder{redis.NewCmd(ctx, "multi"), redis.NewCmd(ctx, "script", "exists", n.witness.sha), redis.NewCmd(ctx, args...),
		redis.NewCmd(ctx, "script", "load", n.witness.source), result}
	if !n.errand(cmds...) {
		return false, false, false
	}
	list, _ := result.Val().([]any)
	var err error
	for _, c := range cmds { // EXEC says that something was refused before, and not what
		err = cmp.Or(err, c.Err())
	}
	if err == nil && len(list) == 3 {
		err, _ = list[1].(error)
	} else if err == nil {
		err = reasonMiscount
	}
	switch {
	case isNoScript(err):
		n.forget() // a new connection loads the scripts
		return false, false, false
	case err != nil:
		n.refuse(reason("its marker cannot be written: " + err.Error()))
		if n.conn != nil && n.conn.wire.shape.inner { // it cannot be used any more, see exchange
			n.tended.later = n.tended.due
			n.forget()
		}
		return false, false, false
	}
	exists, _ := list[0].([]any)
	known = len(exists) != 1 || exists[0] != int64(0)
	return list[1] == int64(1), known, true
}

// confide reads the node's counters, if its marker says steady at that moment, for those that lost their own.
func (n *node) confide() {
	read := n.clock.mono()
	args := []any{"hmget", n.state, "marker"} // and not HGETALL: acquires need HMGET, so a user who lacks it is told of it there
	for _, stripe := range stripeNames {
		args = append(args, stripe)
	}
	all := redis.NewSliceCmd(context.Background(), args...)
	if !n.errand(all) {
		return
	}
	fields := all.Val()
	switch {
	case all.Err() != nil || len(fields) != 1+stripes:
		n.tended.due = n.clock.mono() + lookWhileUnsteady // never at once: nothing else would be served
		return
	case fields[0] != n.marker:
		n.tended.due = n.clock.mono()
		return
	}
	counters := map[string]string{}
	for i, stripe := range stripeNames {
		if c, ok := fields[1+i].(string); ok {
			counters[stripe] = c
		}
	}
	n.keeper.tell(n.index, read, counters)
}

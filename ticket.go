package redlock

import (
	"math/rand/v2"
	"strconv"
)

// ticket is where a call with WithFair stands, on every node the same: the nodes' time when it came, by their median, and
// a name that makes it unique. It is kept on the nodes for its life, and renewed while the call waits. It is about the
// order alone: who owns a lock is decided by the grants, whoever is first in a queue.
type ticket struct {
	call // of a join, and but for the op of a leave
}

// newTicket is for a call that came at the given time, in microseconds.
func newTicket(w *wish, micros uint64, prefix string) *ticket {
	t := &ticket{call: call{op: opJoin, token: fenceText(min(micros, maxFence)) + "-" + strconv.FormatUint(rand.Uint64(), 36),
		ttl: w.ttl, millis: max(1, millis(w.ttl)*2/3), timeout: w.nodeTimeout}}
	for i, r := range w.resources {
		t.keys = append(t.keys, prefix+queueKey+r)
		t.channels = append(t.channels, prefix+freeChannel+w.keys[i])
	}
	return t
}

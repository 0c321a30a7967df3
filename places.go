package redlock

import "time"

// What is asked of nodes on behalf of those who wait: no vote depends on any of it.

// draw makes a ticket that stands behind all that is known now. Until a majority of the nodes' clocks is known it is our
// own clock that counts.
func (q *quorum) draw(w *wish, prefix string) *ticket {
	micros := q.fences.clock(q.clock.mono())
	if micros == 0 {
		micros = uint64(max(1, time.Now().UnixMicro()))
	}
	for {
		last := q.tickets.Load()
		if micros = max(micros, last+1); q.tickets.CompareAndSwap(last, micros) {
			return newTicket(w, micros, prefix)
		}
	}
}

// join takes the place, or keeps it, on every node; asker hears how many are before it.
func (q *quorum) join(t *ticket, asker asker) {
	c := t.call
	c.start = q.clock.now()
	q.submit(&c, asker)
}

// leave gives the place up. A node that does not hear of it keeps it until its life is over.
func (q *quorum) leave(t *ticket) {
	c := t.call
	c.op, c.start = opLeave, q.clock.now()
	q.submit(&c, nobody{})
}

// peek asks one node which of the keys are not there.
func (q *quorum) peek(node int, keys []string, timeout time.Duration, asker asker) {
	q.nodes[node].submit(&request{call: &call{op: opPeek, keys: keys, start: q.clock.now(), timeout: timeout}, asker: asker, node: node})
}

func (q *quorum) submit(c *call, asker asker) {
	for i, n := range q.nodes {
		n.submit(&request{call: c, asker: asker, node: i})
	}
}

// nobody waits for the answer.
type nobody struct{}

func (nobody) sending(*request) bool   { return true }
func (nobody) answered(*request, vote) {}

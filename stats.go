package redlock

import "time"

// Stats are counters since the pool was made, and gauges of this moment.
type Stats struct {
	Acquired       uint64 // locks handed out
	Denied         uint64 // acquire rounds that failed because another holds the resource
	NoQuorum       uint64 // acquire rounds that failed because too few nodes answered
	Renewed        uint64 // renewals, and Extends, that a majority confirmed
	RenewalsFailed uint64 // those that no majority confirmed
	Refilled       uint64 // keys' worth of locks given to nodes that did not have them
	Lost           uint64
	Released       uint64 // locks given back by Unlock or Close
	EventsDropped  uint64 // events that a slow Observer or logger did not get

	Held        int           // locks held now
	Waiting     int           // Lock and MultiLock calls under way
	MaxLateness time.Duration // how much later than planned a renewal began, at worst
	Nodes       []NodeStats   // in the pool's order
}

// NodeStats is one node of Stats.
type NodeStats struct {
	Node        string // address
	Connected   bool
	Down        string        // why it gets no requests; empty while it is up
	Queued      int           // requests that wait for it
	Requests    uint64        // requests that it answered
	Pipelines   uint64        // pipelines sent
	Reconnects  uint64        // connections replaced after they broke
	Timeouts    uint64        // pipelines without an answer in time
	RoundTrip   time.Duration // of the last pipeline
	UndoPending int           // tokens that it may hold although nobody wants them
	Undone      uint64        // tokens taken back by the undo list
	UndoDropped uint64        // tokens that the full undo list had to forget; they run out with their TTL
}

// Stats never blocks on a node.
func (p *Pool) Stats() Stats {
	c := &p.quorum.counts
	s := Stats{
		Acquired: c.acquired.Load(), Denied: c.denied.Load(), NoQuorum: c.noQuorum.Load(),
		Renewed: c.renewed.Load(), RenewalsFailed: c.renewalsFailed.Load(), Refilled: c.refilled.Load(),
		Lost: c.lost.Load(), Released: c.released.Load(), EventsDropped: p.quorum.events.droppedCount(),
		Held: p.dog.count(), Waiting: int(c.waiting.Load()), MaxLateness: time.Duration(c.maxLateness.Load()),
	}
	for _, n := range p.quorum.nodes {
		s.Nodes = append(s.Nodes, n.stats())
	}
	return s
}

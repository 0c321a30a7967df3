package redlock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Event is one thing that happened to a lock or a node. Fields that do not apply are zero.
type Event struct {
	Name      string        // as in the log: "acquired", "denied", "renewed", ...
	Time      time.Time     // when it happened
	Resources []string      // sorted; read-only
	Label     string        // WithLabel of the lock
	Node      string        // address, for events of a node
	Attempt   int           // acquired, denied: which round of the call, from 1
	Wait      time.Duration // acquired, denied: since the call began
	Hold      time.Duration // released, lost: since the acquire began
	Lateness  time.Duration // renewed, renewal_failed: how much later than planned the renewal began
	Granted   int           // nodes that granted, still held the lock, or are free of it again
	Need      int           // how many were needed
	Nodes     int           // how many there are
	Margin    int           // Lock.Margin at that moment
	Validity  time.Duration // acquired, renewed: what is left
	Pending   int           // undo_pending: tokens on that node's undo list
	Err       error         // why: a *QuorumError, the cause of a loss, a node's reason
}

// Observer receives events. Every field is optional. The functions are called one after the other from a goroutine of
// their own, with no lock held, so a slow one delays no lock and no renewal: events that do not fit into the queue
// meanwhile are dropped and counted in Stats.EventsDropped.
type Observer struct {
	Acquired      func(Event) // a call got its lock
	Denied        func(Event) // a round of a call failed; a waiting call goes on
	Renewed       func(Event) // a majority confirmed a held lock
	RenewalFailed func(Event) // a renewal reached no majority; the lock is held until its deadline
	Degraded      func(Event) // a held lock is on fewer nodes than before
	Restored      func(Event) // a held lock is on all nodes (again)
	Lost          func(Event) // ownership can no longer be proved; Err is what Lock.Err returns
	Released      func(Event) // Unlock or Close gave the lock back; Err where too few nodes confirmed it
	NodeLost      func(Event) // a node no longer answers; it has no vote until it does
	NodeBack      func(Event) // a node answers again
	NodeUnsteady  func(Event) // a node has no vote: it restarted, lost its data, or must not vote at all; Err says which
	NodeSteady    func(Event) // a node has its vote again; with an Err, once, where all nodes are new: a first use
	ClockStepped  func(Event) // a node's clock, or, where Node is empty, our own, went wrong by more than the allowance
	UndoPending   func(Event) // a node has tokens to undo that it could not be told about yet
	Warning       func(Event) // a configuration that works but promises less than it seems
}

// kind is an event's place in Observer and its name and level in the log.
type kind uint8

const (
	evAcquired kind = iota
	evDenied
	evRenewed
	evRenewalFailed
	evDegraded
	evRestored
	evLost
	evReleased
	evNodeLost
	evNodeBack
	evNodeUnsteady
	evNodeSteady
	evClockStepped
	evUndoPending
	evWarning
	evCount
)

var kinds = [evCount]struct {
	name  string
	level slog.Level
	of    func(*Observer) func(Event)
}{
	evAcquired:      {"acquired", slog.LevelDebug, func(o *Observer) func(Event) { return o.Acquired }},
	evDenied:        {"denied", slog.LevelDebug, func(o *Observer) func(Event) { return o.Denied }},
	evRenewed:       {"renewed", slog.LevelDebug, func(o *Observer) func(Event) { return o.Renewed }},
	evRenewalFailed: {"renewal_failed", slog.LevelWarn, func(o *Observer) func(Event) { return o.RenewalFailed }},
	evDegraded:      {"degraded", slog.LevelWarn, func(o *Observer) func(Event) { return o.Degraded }},
	evRestored:      {"restored", slog.LevelInfo, func(o *Observer) func(Event) { return o.Restored }},
	evLost:          {"lost", slog.LevelError, func(o *Observer) func(Event) { return o.Lost }},
	evReleased:      {"released", slog.LevelDebug, func(o *Observer) func(Event) { return o.Released }},
	evNodeLost:      {"node_lost", slog.LevelWarn, func(o *Observer) func(Event) { return o.NodeLost }},
	evNodeBack:      {"node_back", slog.LevelInfo, func(o *Observer) func(Event) { return o.NodeBack }},
	evNodeUnsteady:  {"node_unsteady", slog.LevelWarn, func(o *Observer) func(Event) { return o.NodeUnsteady }},
	evNodeSteady:    {"node_steady", slog.LevelInfo, func(o *Observer) func(Event) { return o.NodeSteady }},
	evClockStepped:  {"clock_stepped", slog.LevelWarn, func(o *Observer) func(Event) { return o.ClockStepped }},
	evUndoPending:   {"undo_pending", slog.LevelWarn, func(o *Observer) func(Event) { return o.UndoPending }},
	evWarning:       {"warning", slog.LevelWarn, func(o *Observer) func(Event) { return o.Warning }},
}

// eventQueue is how many events may wait for a slow observer.
const eventQueue = 1024

// events hands events to the observer and the logger. A nil *events has nobody to tell.
type events struct {
	observer *Observer
	logger   *slog.Logger
	queue    chan queued
	stop     chan struct{}
	ended    chan struct{} // closed when run has ended
	dropped  atomic.Uint64
}

type queued struct {
	kind  kind
	event Event
}

func newEvents(observer *Observer, logger *slog.Logger) *events {
	if observer == nil && logger == nil {
		return nil
	}
	if observer == nil {
		observer = &Observer{}
	}
	return &events{observer: observer, logger: logger, queue: make(chan queued, eventQueue),
		stop: make(chan struct{}), ended: make(chan struct{})}
}

// wants says whether anybody listens to this kind, so that an event need not be put together for nobody.
func (e *events) wants(k kind) bool {
	if e == nil {
		return false
	}
	return e.logger != nil || kinds[k].of(e.observer) != nil
}

// emit never blocks.
func (e *events) emit(k kind, ev Event) {
	if !e.wants(k) {
		return
	}
	ev.Name, ev.Time = kinds[k].name, time.Now()
	select {
	case e.queue <- queued{k, ev}:
	default:
		e.dropped.Add(1)
	}
}

// run is the goroutine that delivers, until close and then what is queued by then.
func (e *events) run() {
	defer close(e.ended)
	for {
		select {
		case q := <-e.queue:
			e.deliver(q)
		case <-e.stop:
			for {
				select {
				case q := <-e.queue:
					e.deliver(q)
				default:
					return
				}
			}
		}
	}
}

// close ends run once what is queued has been delivered, and waits for that until patience is over: an observer that
// blocks, or that closes the pool itself, must not hold up Close.
func (e *events) close(patience time.Duration) {
	if e == nil {
		return
	}
	close(e.stop)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-e.ended:
	case <-timer.C:
	}
}

func (e *events) deliver(q queued) {
	if f := kinds[q.kind].of(e.observer); f != nil {
		f(q.event)
	}
	if e.logger != nil && e.logger.Enabled(context.Background(), kinds[q.kind].level) {
		e.logger.LogAttrs(context.Background(), kinds[q.kind].level, "redlock: "+q.event.Name, q.event.attrs()...)
	}
}

func (e *events) droppedCount() uint64 {
	if e == nil {
		return 0
	}
	return e.dropped.Load()
}

// attrs are the event's fields that are set, under the names that observers know in lower case.
func (ev Event) attrs() []slog.Attr {
	var as []slog.Attr
	if len(ev.Resources) > 0 {
		as = append(as, slog.String("resources", nameResources(ev.Resources)))
	}
	text := func(name, v string) {
		if v != "" {
			as = append(as, slog.String(name, v))
		}
	}
	number := func(name string, v int) {
		if v != 0 {
			as = append(as, slog.Int(name, v))
		}
	}
	span := func(name string, v time.Duration) {
		if v != 0 {
			as = append(as, slog.Duration(name, v))
		}
	}
	text("label", ev.Label)
	text("node", ev.Node)
	number("attempt", ev.Attempt)
	span("wait", ev.Wait)
	span("hold", ev.Hold)
	span("lateness", ev.Lateness)
	if ev.Nodes > 0 {
		as = append(as, slog.Int("granted", ev.Granted), slog.Int("need", ev.Need), slog.Int("nodes", ev.Nodes),
			slog.Int("margin", ev.Margin))
	}
	span("validity", ev.Validity)
	number("pending", ev.Pending)
	if ev.Err != nil {
		as = append(as, slog.String("err", ev.Err.Error()))
	}
	return as
}

// Stats are counters since the pool was made, and gauges of this moment.
type Stats struct {
	Acquired       uint64 // locks handed out
	Denied         uint64 // acquire rounds that failed because another holds the resource
	NoQuorum       uint64 // acquire rounds that failed because too few nodes answered
	Renewed        uint64 // renewals, and Extends, that a majority confirmed
	RenewalsFailed uint64 // those that no majority confirmed
	Refilled       uint64 // keys' worth of locks given to nodes that did not have them
	FencesRaised   uint64 // acquires that took a second round trip, because the nodes answered different fences
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
	Steady      bool          // it has a vote; always true while it is up where WithRestartGuard is 0
	NoVote      string        // why it has none; empty while it has
	Clock       ClockStats    // its clock, by the readings of the last seconds; zero where WithRestartGuard is 0
	Subscribed  int           // resources that somebody waits for, and whose releases it tells us of
	UndoPending int           // tokens that it may hold although nobody wants them
	Undone      uint64        // tokens taken back by the undo list
	UndoDropped uint64        // tokens that the full undo list had to forget; they run out with their TTL
}

// ClockStats is a node's clock as it was last compared with this machine's.
type ClockStats struct {
	Offset    time.Duration // how far it is ahead of this machine's wall clock
	Bound     time.Duration // by how much Offset may be wrong: half a round trip
	Rate      float64       // how much faster than ours it runs, as a share: 0.01 is 1 %
	RateBound float64       // by how much Rate may be wrong; 0 until Rate is known
}

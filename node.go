package redlock

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxQueue      = 4096    // requests that may wait for a node; one more is "no answer", at once
	maxBatch      = 256     // requests in one pipeline
	maxBatchBytes = 1 << 20 // of keys in one pipeline: long names must not make their neighbours late

	maxUndos = 64 // releases of the undo list in one pipeline, so that they never hold up votes for long
)

// call is what one round asks of every node; read-only once the round has begun.
type call struct {
	op      op
	keys    []string
	token   string
	ttl     time.Duration
	start   instant       // read before the first request was queued
	timeout time.Duration // how long the round waits for a node

	// For requests that may create keys.
	millis   int64    // ttl as the nodes count it
	stripes  []string // the keys' counters
	fence    string   // acquire: the proposal; renew: what the counters must not be below
	proposed uint64   // acquire: the same as a number; 0: none

	channels []string // leave: of the resources whose queues are the keys
}

// request is a call on its way to one node.
type request struct {
	*call
	asker  asker
	node   int   // index of the node
	latest int64 // last second of the node's clock at which it may be applied; 0 until it is first sent
	sent   bool  // it has left, once at least; the asker's
	resent bool
	left   []int64 // peek: the answer, for each key what PTTL says
}

// asker is who a node reports to. Both methods are called without a lock of the node held, and must not block.
type asker interface {
	// sending is asked right before a request leaves; false drops it unsent.
	sending(*request) bool
	// answered is called exactly once for every submitted request.
	answered(*request, vote)
}

// vote is a node's answer to one request.
type vote struct {
	kind      voteKind
	reason    error         // why not, for voteDenied and voteNone
	key       int           // voteDenied: index of the key that is in the way, -1 if unknown
	remaining time.Duration // voteDenied: how long it is in the way at most; negative: no expiry or unknown
	micros    int64         // voteGrant of an acquire or a join: the server's time, microseconds since 1970
	fence     uint64        // voteGrant of an acquire: the fence that the node answered
	count     int           // voteGrant of a release: how many subscribers were told, -1 if none may be; of a join: places before it
}

type voteKind uint8

const (
	voteNone         voteKind = iota // no answer: nobody knows what the node did
	voteGrant                        // acquired; still ours; released
	voteDenied                       // another's; nothing was written
	voteRefill                       // renew: the key was missing and is set again
	voteNever                        // the request never left: nothing was written
	voteLate                         // it arrived after its latest second: nothing was written
	voteUnsteady                     // the node has no vote: nothing was written
	voteUnsteadyOurs                 // renew: the node has no vote; the keys are ours there, set again where they were missing
	voteUnanswered                   // of serve alone: to be sent again, or unknown
)

func noAnswer(why error) vote { return vote{kind: voteNone, reason: why} }

// node is one voting Redis server: a bounded queue, and one goroutine that takes whatever waits there into one
// pipeline on one connection.
//
//	submit -> queue -> take -> serve: one pipeline -> answered          (run is the goroutine)
//	             failed or unwanted -> undo list -> tick: TIME, releases
//
// Order per resource is first in, first out. A cut connection is replaced within milliseconds and what it left
// unanswered is sent once more; after a timeout nothing is sent again, the node is down, gets no requests, and is
// probed until it answers.
type node struct {
	index   int    // set by newNode, then read-only, like the fields below
	name    string // address without credentials
	opts    *redis.Options
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	timeout time.Duration // of every exchange, and between probes
	clock   clock
	idle    time.Duration // how old a reading of the clock may grow
	events  *events
	keeper  *keeper
	state   string // key of the hash with the node's marker and fence counters
	channel string // what a key's channel begins with
	witness script // of that
	wake    chan struct{}
	ended   chan struct{} // closed when run has ended

	mu      sync.Mutex // guards the fields below
	queue   []*request
	head    int   // queue[head:] waits
	down    error // why the node gets no requests; nil while it is up
	closing bool  // nothing new is accepted
	gone    bool  // run has ended
	giveUp  time.Duration
	undos   undoList

	// Of the run goroutine alone.
	conn      *conn
	server    serverClock   // written under mu, for submit reads it
	marker    string        // of a steady node in its present run; empty where every node is taken for one
	probeAt   time.Duration // when a node that is down is tried next, monotonic since the epoch
	ticked    time.Duration // when the clock was last asked for, read or not, monotonic since the epoch
	stale     bool          // a request came too late by the server's clock: read it at once
	undoFrom  time.Duration // no undo before this instant: the server refused one; 0 if it did not. Monotonic since the epoch
	reconnect bool          // an idle connection broke: make a new one before the next caller needs it
	dialing   *dialing      // the one dial under way, nil while there is none
	slots     [opCount][]*slot
	used      [opCount]int // how many of them this pipeline has
	calls     [][]any      // argument lists of calls for many requests
	cmds      []redis.Cmder
	places    []place // of a batch's answers in cmds
	batch     []*request
	votes     []vote
	tended    tended
	tending   bool // there is something to do for the marker
	base      baselines

	live        atomic.Pointer[conn] // the same as conn, for those who may only close it
	served      atomic.Uint64
	pipelines   atomic.Uint64
	reconnects  atomic.Uint64
	timeouts    atomic.Uint64
	undone      atomic.Uint64
	undoDropped atomic.Uint64
	roundTrip   atomic.Int64 // of the last exchange
	clockStats  atomic.Pointer[ClockStats]
	zero        atomic.Int64 // the server's clock, in microseconds, at the pool's epoch; 0 while unknown
}

func newNode(index int, opts *redis.Options, timeout time.Duration, c clock, ev *events, k *keeper, prefix string) *node {
	own := nodeOptions(opts, timeout)
	state := prefix + stateKey
	return &node{index: index, name: opts.Addr, opts: own, dial: opts.Dialer, timeout: timeout, clock: c, events: ev,
		idle: k.idle(), keeper: k, state: state, channel: prefix + freeChannel, witness: witnessOf(state, opts.DB), wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// submit queues a request, to be sent once nudge is called. It never blocks: a node that is down, closed or full answers
// at once.
func (n *node) submit(r *request) {
	n.mu.Lock()
	var why error
	switch {
	case n.closing:
		why = reasonClosed
	case n.down != nil:
		why = n.down
	case len(n.queue)-n.head >= maxQueue:
		why = reasonFull
	default:
		n.push(r)
		n.mu.Unlock()
		return
	}
	if r.op == opRelease {
		n.undoLaterLocked(r)
	}
	n.mu.Unlock()
	r.asker.answered(r, noAnswer(why))
}

// nudge wakes the node's goroutine.
func (n *node) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *node) push(r *request) {
	if n.head > 0 && len(n.queue) == cap(n.queue) {
		k := copy(n.queue, n.queue[n.head:])
		clear(n.queue[k:])
		n.queue, n.head = n.queue[:k], 0
	}
	n.queue = append(n.queue, r)
}

func (n *node) pop() *request {
	r := n.queue[n.head]
	n.queue[n.head] = nil
	n.head++
	if n.head == len(n.queue) {
		n.queue, n.head = n.queue[:0], 0
	}
	return r
}

// close lets the node finish its queue and undo list until the given instant, and ends its goroutine.
func (n *node) close(giveUp time.Duration) {
	n.mu.Lock()
	n.closing, n.giveUp = true, giveUp
	n.mu.Unlock()
	n.nudge()
}

// abort breaks an exchange under way, however long its connection would let it last.
func (n *node) abort() {
	if c := n.live.Load(); c != nil {
		_ = c.wire.Close()
	}
}

// run is the node's goroutine. It ends after close.
func (n *node) run() {
	defer close(n.ended)
	defer n.finish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, ok := n.next()
		if !ok {
			return
		}
		if wait > 0 {
			timer.Reset(wait)
			select {
			case <-n.wake:
			case <-timer.C:
			}
			continue
		}
		if n.conn == nil {
			n.connect()
			continue
		}
		if n.tending {
			if n.tend(); n.conn == nil {
				continue
			}
		}
		if batch := n.take(); len(batch) > 0 {
			n.serve(batch)
		}
		if n.conn != nil && n.tickDue() {
			n.tick()
		}
	}
}

// next says how long there is nothing to do; false means that the node is closed and done.
func (n *node) next() (time.Duration, bool) {
	now := n.clock.mono()
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := len(n.queue) > n.head
	wait := forever
	if n.closing {
		if !waiting && n.undos.len() == 0 || now >= n.giveUp {
			return 0, false
		}
		wait = n.giveUp - now
	}
	if n.down != nil {
		return min(wait, max(0, n.probeAt-now)), true
	}
	if n.tending = !n.closing && n.tendDue(now); n.tending {
		return 0, true
	}
	if waiting || n.reconnect || n.conn == nil && n.keeper.begun.Load() {
		return 0, true
	}
	if due, ok := n.undos.next(); ok {
		wait = min(wait, max(0, max(due, n.undoFrom)-now))
	}
	if n.conn != nil && n.stale {
		return 0, true
	}
	if n.conn != nil && !n.closing && n.keeper.guard > 0 {
		wait = min(wait, max(0, n.tended.next()-now))
	}
	if n.conn != nil && !n.closing {
		wait = min(wait, max(0, n.idle-(now-max(n.server.asked, n.ticked))))
	}
	return wait, true
}

// take removes the next batch from the queue, leaving out what nobody wants any more.
func (n *node) take() []*request {
	n.batch = n.batch[:0]
	size := 0
	for len(n.batch) < maxBatch && size < maxBatchBytes {
		at := len(n.batch)
		n.mu.Lock()
		for len(n.batch) < maxBatch && size < maxBatchBytes && len(n.queue) > n.head {
			r := n.pop()
			for _, k := range r.keys {
				size += len(k)
			}
			n.batch = append(n.batch, r)
		}
		n.mu.Unlock()
		if len(n.batch) == at {
			break
		}
		kept := n.batch[:at]
		for _, r := range n.batch[at:] {
			if r.asker.sending(r) {
				kept = append(kept, r)
			} else {
				r.asker.answered(r, vote{kind: voteNever, reason: reasonNeverSent})
			}
		}
		clear(n.batch[len(kept):])
		n.batch = kept
	}
	return n.batch
}

func (n *node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down == nil
}

func (n *node) stats() NodeStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := NodeStats{
		Node: n.name, Connected: n.live.Load() != nil, Queued: len(n.queue) - n.head,
		Requests: n.served.Load(), Pipelines: n.pipelines.Load(), Reconnects: n.reconnects.Load(),
		Timeouts: n.timeouts.Load(), RoundTrip: time.Duration(n.roundTrip.Load()),
		UndoPending: n.undos.len(), Undone: n.undone.Load(), UndoDropped: n.undoDropped.Load(),
	}
	if n.down != nil {
		s.Down = n.down.Error()
	}
	if c := n.clockStats.Load(); c != nil {
		s.Clock = *c
	}
	if why := n.keeper.voteless(n.index); why != nil {
		s.NoVote = why.Error()
	}
	s.Steady = n.keeper.isSteady(n.index)
	return s
}

package sim

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock/internal/peer"
)

// node is a server: its process and what it remembers.
type node struct {
	*peer.Server
	w     *world
	index int
	name  string

	frozen gate         // the process stands still
	life   atomic.Int64 // counts processes: what was sent to a dead one is lost

	trouble time.Duration // until when a fault is felt; guarded by the checker's mutex

	votes  map[string]*votes // by token; guarded by the server's mutex, like the next
	lapsed time.Duration     // when its process last began, or it was flushed

	mu     sync.Mutex            // guards the fields below
	down   bool                  // no process: connections are refused
	refuse bool                  // the process takes no new connections
	conns  []net.Conn            // in the order in which they came, for they are cut in it: a map has another in each process
	keys   map[string]peer.Value // the last snapshot
	fields map[string]string
	back   time.Duration // when its clock was last set back; 0: never
	behind bool          // it has lost counters, and was not steady again since
}

func newNode(w *world, i int) *node {
	n := &node{Server: peer.NewServer(), w: w, index: i, name: fmt.Sprintf("10.0.0.%d:6379", i+1),
		votes: map[string]*votes{}, lapsed: -time.Hour}
	n.Voted, n.Released = n.voted, n.released
	r := w.rng(actorNode, i)
	n.Step(between(r, -time.Hour, time.Hour))      // servers' clocks show different times
	n.Started = n.Now().Add(-24 * time.Hour)       // and have run for long
	n.Speed(w.plan.Rate + (r.Float64()*2-1)*0.001) // at nearly the same rate
	if w.plan.Ahead {
		for _, name := range slices.Concat(shared, rare) {
			n.Fields[strconv.Itoa(int(stripe(name)))] = fmt.Sprintf("%016d", w.epoch.Add(3*time.Hour).UnixMicro())
		}
	}
	n.keys, n.fields = n.Server.Snapshot()
	return n
}

// wait waits until the process runs; false if it is not the one of that life any more.
func (n *node) wait(life int64) bool {
	n.frozen.pass(always)
	return n.life.Load() == life
}

var errRefused = errors.New("connection refused")

// admit takes a connection in.
func (n *node) admit(c net.Conn) (life int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down || n.refuse {
		return 0, errRefused
	}
	n.conns = append(n.conns, c)
	return n.life.Load(), nil
}

func (n *node) dismiss(c net.Conn) {
	_ = c.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = slices.DeleteFunc(n.conns, func(other net.Conn) bool { return other == c })
}

// cut closes all connections; what arrived before is still executed.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
}

// crash ends the process.
func (n *node) crash() {
	n.mu.Lock()
	n.down = true
	n.life.Add(1)
	n.frozen.open()
	n.mu.Unlock()
	n.cut()
}

// keeps is what a restarted server still has.
type keeps int

const (
	nothing keeps = iota
	everything
	snapshot // of some time ago
	keysGone // the counters, but neither keys nor marker
)

// start is a new process.
func (n *node) start(k keeps) {
	n.Restart(k == everything || k == keysGone)
	n.lapse()
	switch k {
	case snapshot:
		n.Do(func() { maps.Copy(n.Keys, n.keys); maps.Copy(n.Fields, n.fields) })
	case keysGone:
		n.Do(func() { clear(n.Keys); delete(n.Fields, "marker") })
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

// flush is FLUSHALL.
func (n *node) flush() {
	n.Flush()
	n.lapse()
}

// save is a snapshot for later.
func (n *node) save() { n.keys, n.fields = n.Snapshot() }

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// mend brings the process back, with what it has, and without errors.
func (n *node) mend() {
	n.frozen.open()
	n.Do(func() { clear(n.Errs) })
	n.mu.Lock()
	n.refuse = false
	down := n.down
	n.mu.Unlock()
	if down {
		n.start(everything)
	}
}

// steady says whether the node's marker gives it a vote in its present run.
func (n *node) steady() (yes bool) {
	n.Do(func() { yes = isSteady(n.Fields["marker"], n.Run) })
	return yes
}

func (n *node) setRefuse(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = on
}

// forgot notes that the node loses counters.
func (n *node) forgot() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.behind = true
}

// lacks says whether the node may lack counters that it had.
func (n *node) lacks() bool {
	steady := n.steady()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.behind = n.behind && (!steady || n.down)
	return n.behind
}

// setBack sets the clock back by d.
func (n *node) setBack(d time.Duration) {
	n.Step(-d)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.back = n.w.now()
}

// wasSetBack says whether requests may still be under way that the clock lets in although their second is over.
func (n *node) wasSetBack() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.back > 0
}

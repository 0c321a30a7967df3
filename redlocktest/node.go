package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is an embedded Redis with switches for its faults. Connections go
// through its [Proxy]; the methods that look at the data do not, so they work
// whatever is broken.
//
// All methods are safe for concurrent use. Faults add up; each stays until it
// is switched off, also over a restart, but for a freeze, which ends with the
// process that is frozen.
type Node struct {
	proxy  *Proxy // this group is set by startNode, then read-only
	client *redis.Client
	faults *faults
	clock  clock
	engine atomic.Pointer[engine] // nil while stopped

	life     sync.Mutex // held while the node stops, starts, freezes or thaws; guards the fields below
	password string
	closed   bool
}

// startNode starts a node. close ends it.
func startNode() (*Node, error) {
	n := &Node{faults: newFaults()}
	var err error
	n.proxy, err = newProxy(func(l *link) {
		if e := n.engine.Load(); e == nil || !e.serve(l) {
			l.kill()
		}
	})
	if err != nil {
		return nil, err
	}
	n.client = redis.NewClient(&redis.Options{Addr: n.proxy.Addr()})
	if err := n.start(firstUptime); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// firstUptime is how long a new node says that it has been up, so that a lock
// library does not take it for a server that has just been restarted.
const firstUptime = 24 * time.Hour

// Addr returns the node's address, 127.0.0.1:port. It never changes.
func (n *Node) Addr() string { return n.proxy.Addr() }

// URL returns the node's address as redis://127.0.0.1:port, with the password
// if one is required at the time of the call.
func (n *Node) URL() string {
	n.life.Lock()
	defer n.life.Unlock()
	u := url.URL{Scheme: "redis", Host: n.Addr()}
	if n.password != "" {
		u.User = url.UserPassword("", n.password)
	}
	return u.String()
}

// Client returns a client of the node with go-redis's default settings, always
// the same one. It is closed with the node.
func (n *Node) Client() *redis.Client { return n.client }

// RunID returns the run id of the present run, or "" while the node is stopped.
func (n *Node) RunID() string {
	if e := n.engine.Load(); e != nil {
		return e.runID
	}
	return ""
}

// Stop kills the node, as SIGKILL would one that saves nothing: its data, its
// loaded scripts and all requests that wait are gone, its connections break,
// new ones are refused. A stopped node stays so.
func (n *Node) Stop() {
	n.life.Lock()
	defer n.life.Unlock()
	n.stopLocked()
}

func (n *Node) stopLocked() {
	n.proxy.hangUp(false)
	if e := n.engine.Swap(nil); e != nil {
		e.close()
	}
	n.proxy.Thaw()
}

// Restart stops the node if it runs and starts it again, at the same address:
// empty, with a new run id, an uptime of zero and no loaded scripts. The clock
// keeps its steps and its rate. [Node.RestartWithData] and [Node.RestartFrom] keep
// data. The error says that the address was taken meanwhile or that
// the node was closed.
func (n *Node) Restart() error { return n.start(0) }

func (n *Node) start(uptime time.Duration) error {
	n.life.Lock()
	defer n.life.Unlock()
	return n.startLocked(uptime, nil)
}

// startLocked is a new run of the node, with the data of a snapshot if there is
// one. n.life must be held.
func (n *Node) startLocked(uptime time.Duration, s *Snapshot) error {
	if n.closed {
		return errors.New("redlocktest: the node is closed")
	}
	n.stopLocked()
	e, err := startEngine(n, n.password, uptime)
	if err != nil {
		return fmt.Errorf("redlocktest: starting %s: %w", n.Addr(), err)
	}
	if s != nil {
		e.with(func(m miniDB) { err = s.load(m, n.clock.now()) })
		if err != nil {
			e.close()
			return err
		}
	}
	n.engine.Store(e)
	return n.proxy.Refuse(false)
}

// Freeze stops the node as SIGSTOP would: connections are accepted, bytes pile
// up, nothing is executed once Freeze has returned, nothing is answered. After
// [Node.Thaw] all that arrived is executed, also what came on connections that
// the client has closed by then. Time goes on: keys expire meanwhile.
func (n *Node) Freeze() {
	n.life.Lock()
	defer n.life.Unlock()
	n.proxy.Freeze()
	if e := n.engine.Load(); e != nil {
		e.pause(true)
	}
}

// Thaw ends a freeze.
func (n *Node) Thaw() {
	n.life.Lock()
	defer n.life.Unlock()
	if e := n.engine.Load(); e != nil {
		e.pause(false)
	}
	n.proxy.Thaw()
}

// Delay adds d to the way of each reply, see [Proxy.Delay]. Requests are
// executed at once.
func (n *Node) Delay(d time.Duration) { n.proxy.Delay(d) }

// BlackHole makes the network eat all that is sent, see [Proxy.BlackHole].
func (n *Node) BlackHole(on bool) { n.proxy.BlackHole(on) }

// BlackHoleRequests eats what clients send, see [Proxy.BlackHoleRequests].
func (n *Node) BlackHoleRequests(on bool) { n.proxy.BlackHoleRequests(on) }

// BlackHoleReplies eats what the node answers, see [Proxy.BlackHoleReplies].
func (n *Node) BlackHoleReplies(on bool) { n.proxy.BlackHoleReplies(on) }

// Jitter adds a random time below max to the way of each reply, see [Proxy.Jitter].
func (n *Node) Jitter(max time.Duration, seed uint64) { n.proxy.Jitter(max, seed) }

// Trickle slows bytes down, see [Proxy.Trickle].
func (n *Node) Trickle(bytesPerSecond int) { n.proxy.Trickle(bytesPerSecond) }

// HalfOpen makes the node forget its connections without closing them, see
// [Proxy.HalfOpen].
func (n *Node) HalfOpen() { n.proxy.HalfOpen() }

// RefuseNew makes new connections be refused and leaves the present ones alone. It
// ends with a restart.
func (n *Node) RefuseNew(on bool) error {
	n.life.Lock()
	defer n.life.Unlock()
	if n.engine.Load() == nil {
		return nil // a stopped node refuses anyway
	}
	return n.proxy.RefuseNew(on)
}

// Cut closes all current connections, see [Proxy.Cut].
func (n *Node) Cut() { n.proxy.Cut() }

// Pending returns the number of request bytes that arrived and were not read by
// the node, see [Proxy.Pending].
func (n *Node) Pending() int { return n.proxy.Pending() }

// Connections returns the number of connections, see [Proxy.Connections].
func (n *Node) Connections() int { return n.proxy.Connections() }

// DropReplies loses the replies to the next k requests of the given commands:
// each is executed, and in place of its reply the connection breaks. Replies
// before it in the same pipeline arrive; requests behind it, as far as they
// have arrived, are executed. Without commands it means all but those that
// set up a connection (HELLO, AUTH, CLIENT, SELECT). A new k replaces the last
// one for the same commands; 0 ends all.
func (n *Node) DropReplies(k int, commands ...string) { n.faults.addDrop(dropCut, k, commands) }

// ReplayRequests executes the next k requests of the given commands twice, as if
// the network had doubled them; only the first reply is sent. Without commands it
// means all but those that set up a connection. Blocking commands and those inside
// of MULTI are not replayed. A new k replaces the last one for the same commands; 0
// ends all.
func (n *Node) ReplayRequests(k int, commands ...string) {
	n.faults.addDrop(replayed, k, commands)
}

// SwallowReplies is [Node.DropReplies] with silence in place of the break: the
// connection stays open and never answers again, while what is sent on it is
// still executed.
func (n *Node) SwallowReplies(k int, commands ...string) { n.faults.addDrop(dropSilent, k, commands) }

// Fail makes the given commands answer an error, for instance [OOM], until it
// is called for them with "". The commands are not executed; where a script
// calls one, the script fails there, with what it wrote before left in place.
// Without commands it means all but those that set up a connection (HELLO,
// AUTH, CLIENT, SELECT), and scripts are refused as a whole; Fail("") ends
// everything.
func (n *Node) Fail(reply string, commands ...string) { n.faults.fail(reply, commands) }

// SetInfo sets a field of INFO, for instance maxmemory, role or run_id. Only
// fields that the node answers anyway can be set.
func (n *Node) SetInfo(field, value string) { n.faults.setInfo(field, value) }

// RequirePassword makes the node ask for a password, also on connections that
// are open; "" ends it. It is kept over a restart. [Node.Client] does not know it.
func (n *Node) RequirePassword(password string) {
	n.life.Lock()
	defer n.life.Unlock()
	n.password = password
	n.engine.Load().with(func(m miniDB) { m.RequireAuth(password) })
}

// Requests returns how often the command was executed or answered by [Node.Fail]
// since the node was made; "" means all commands. Commands inside a script do
// not count, those queued by MULTI do.
func (n *Node) Requests(command string) int64 { return n.faults.requests(command) }

// WaitRequests returns when [Node.Requests] of the command has reached k, or
// with an error when ctx ends.
func (n *Node) WaitRequests(ctx context.Context, command string, k int64) error {
	return n.faults.wait(ctx, command, k)
}

// close ends the node for good and waits for its goroutines.
func (n *Node) close() error {
	n.life.Lock()
	defer n.life.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	err := n.client.Close()
	n.stopLocked()
	return errors.Join(err, n.proxy.Close())
}

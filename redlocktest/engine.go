package redlocktest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// engine is one run of an embedded Redis, from its start to its death. It
// executes one command at a time, as Redis does, each at the node's time.
type engine struct {
	node    *Node  // this group is set by startEngine, then read-only
	runID   string // 40 hex digits
	started time.Time
	mini    *miniredis.Miniredis
	srv     *server.Server

	run    sync.Mutex // held while a command runs; guards the fields below
	wake   *sync.Cond // on run: paused or closed changed
	paused bool
	closed bool
	ident  *link // the link whose server side was written last, see identify

	mu       sync.Mutex // guards the fields below; nothing is called under it
	sessions map[*server.Peer]*session
	lastID   int64
}

// session is a client connection as the engine sees it. Its fields belong to
// the goroutine that serves the connection.
type session struct {
	id     int64
	link   *link
	inside bool // the engine itself runs a command for this connection
	multi  bool // between MULTI and EXEC
	dirty  bool // a queued command was refused, so EXEC must be too
}

// blocking commands wait for other commands, so they cannot run alone.
var blocking = map[string]bool{
	"BLPOP": true, "BRPOP": true, "BRPOPLPUSH": true, "BLMOVE": true, "BLMPOP": true,
	"BZPOPMIN": true, "BZPOPMAX": true, "BZMPOP": true, "XREAD": true, "XREADGROUP": true,
}

// startEngine starts an empty Redis with a new run id, as if it had been up for
// some time. Its connections come from serve. It has goroutines for those only;
// close ends them.
func startEngine(n *Node, password string, uptime time.Duration) (*engine, error) {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	e := &engine{
		node: n, runID: hex.EncodeToString(id), started: n.clock.now().Add(-uptime),
		mini: miniredis.NewMiniRedis(), sessions: map[*server.Peer]*session{},
	}
	e.wake = sync.NewCond(&e.run)
	// The first Dial starts the server without a listener of its own.
	conn, err := e.mini.Dial()
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	e.srv = e.mini.Server()
	e.srv.SetPreHook(e.hook)
	e.mini.SetTime(n.clock.now())
	e.mini.ClockTTL(true)
	e.mini.RequireAuth(password)
	return e, nil
}

// serve makes l a connection of the engine. It reports false if the engine is dead.
func (e *engine) serve(l *link) bool {
	e.run.Lock()
	defer e.run.Unlock()
	if e.closed {
		return false
	}
	e.srv.ServeConn(&engineConn{nodeSide: nodeSide{l}, engine: e})
	return true
}

// pause holds commands back until it is called with false. When it returns, no
// command is running.
func (e *engine) pause(on bool) {
	e.run.Lock()
	defer e.run.Unlock()
	e.paused = on
	e.wake.Broadcast()
}

// close kills the engine with its data. Commands that wait are not executed.
func (e *engine) close() {
	e.run.Lock()
	e.closed = true
	e.wake.Broadcast()
	e.run.Unlock()
	e.mini.Close() // waits for the connections, which may wait for run
}

// with runs f on the data at the node's time, past all faults. It reports false
// if the engine is dead.
func (e *engine) with(f func(*miniredis.Miniredis)) bool {
	if e == nil {
		return false
	}
	e.run.Lock()
	defer e.run.Unlock()
	if e.closed {
		return false
	}
	e.mini.SetTime(e.node.clock.now())
	f(e.mini)
	return true
}

// engineConn is the server's side of a connection. Its first write says who it
// is, see identify.
type engineConn struct {
	nodeSide
	engine     *engine
	identified bool
}

func (c *engineConn) Write(b []byte) (int, error) {
	if !c.identified {
		c.identified = true
		c.engine.ident = c.link
		return len(b), nil
	}
	return c.link.Write(b)
}

// identify finds the link behind a connection: the server does not tell, so the
// first bytes written to each connection are a question that engineConn answers
// and keeps from the client. e.run must be held.
func (e *engine) identify(c *server.Peer) *link {
	c.WriteRaw("?")
	c.Flush()
	return e.ident
}

// hook sees every command before the server does, also those that scripts call.
// It returns true if the command is done.
func (e *engine) hook(c *server.Peer, cmd string, args ...string) bool {
	s := e.session(c)
	switch {
	case s == nil:
		return e.nested(c, cmd, args)
	case s.inside:
		return false
	}
	e.run.Lock()
	defer e.run.Unlock()
	if s.link == nil {
		s.link = e.identify(c)
	}
	for e.paused && !e.closed {
		e.wake.Wait()
	}
	if e.closed {
		c.Close()
		return true
	}
	e.mini.SetTime(e.node.clock.now())
	e.drop(s, cmd)
	defer e.node.faults.count(cmd)
	if reply := e.node.faults.failure(cmd, true); reply != "" {
		s.dirty = s.multi
		c.WriteError(reply)
		return true
	}
	if blocking[cmd] {
		return false
	}
	alone := !s.multi && cmd != "MULTI"
	e.execute(c, s, cmd, args)
	if alone && e.node.faults.takeReplay(cmd) {
		e.capture(c, cmd, args)
		e.node.faults.count(cmd)
	}
	return true
}

// session returns the session of a connection, a new one for a new connection,
// and nil for a script: the server gives those a context in advance.
func (e *engine) session(c *server.Peer) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sessions[c]
	if s == nil && c.Ctx == nil {
		e.lastID++
		s = &session{id: e.lastID}
		e.sessions[c] = s
		c.OnDisconnect(func() { e.endSession(c) })
	}
	return s
}

func (e *engine) endSession(c *server.Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, c)
}

// drop arranges that the reply of cmd does not reach the client, if a fault
// says so. The command runs all the same, before anybody can look.
func (e *engine) drop(s *session, cmd string) {
	switch e.node.faults.takeDrop(cmd) {
	case dropCut:
		s.link.dropRest()
	case dropSilent:
		s.link.muteRest()
	}
}

// dispatch runs a command on the server for a connection. e.run must be held.
func (e *engine) dispatch(c *server.Peer, s *session, cmd string, args []string) {
	s.inside = true
	defer func() { s.inside = false }()
	e.srv.Dispatch(c, append([]string{cmd}, args...))
}

// capture is dispatch with the reply, in wire format, returned instead of sent.
func (e *engine) capture(c *server.Peer, cmd string, args []string) string {
	var reply bytes.Buffer
	shadow := server.NewPeer(bufio.NewWriter(&reply))
	shadow.Ctx, shadow.Resp3 = c.Ctx, c.Resp3
	e.mu.Lock()
	e.sessions[shadow] = &session{inside: true}
	e.mu.Unlock()
	defer e.endSession(shadow)
	e.srv.Dispatch(shadow, append([]string{cmd}, args...))
	shadow.Flush()
	c.Ctx = shadow.Ctx
	return reply.String()
}

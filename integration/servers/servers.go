// Package servers gives tests and benchmarks real Redis servers that are independent of each other, and does to them
// what happens to servers: they hang, die, come back empty or with old data, and lose their network.
//
// A server is a container, a process or an embedded node; the test does not care which, unless it needs what only one
// kind can do. REDLOCK_TEST_PROVIDER forces the kind, see [Provider].
package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// faultTimeout bounds each start, fault and repair. It is met in well under a second where the machine has time.
const faultTimeout = time.Minute

// Set is a number of independent servers of one kind.
type Set struct {
	provider Provider
	servers  []*Server
}

// Start gives n independent, empty servers, each of which answers. They end with the test, and leave nothing behind.
// It fails the test, with what to install or to set, if the kind of server asked for is not to be had.
func Start(t testing.TB, n int, opts ...Option) *Set {
	t.Helper()
	cfg := config{name: t.Name()}
	for _, opt := range opts {
		opt(&cfg)
	}
	kind, err := choose(cfg)
	if err != nil {
		t.Fatalf("servers: %v", err)
	}

	if cfg.clock {
		requireClock(t, kind.provider)
	}

	// 1. Start all at once. Those that did start are ended by the test's clean-up even if others did not.
	nodes, err := kind.start(t, n, cfg)
	t.Cleanup(func() { closeAll(t, nodes) })
	if err != nil {
		t.Fatalf("servers: %v", err)
	}

	// 2. Wait until each of them answers.
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	set := &Set{provider: kind.provider}
	for _, node := range nodes {
		s := newServer(t, node, cfg)
		set.servers = append(set.servers, s)
		if err := s.awaitPing(ctx); err != nil {
			t.Fatalf("servers: %s does not answer: %v%s", s.Addr(), err, kind.hint)
		}
	}
	return set
}

// Provider says which kind of server the set has.
func (s *Set) Provider() Provider { return s.provider }

// Len is the number of servers.
func (s *Set) Len() int { return len(s.servers) }

// Server returns the server with index i, from 0.
func (s *Set) Server(i int) *Server { return s.servers[i] }

// URLs returns each server's [Server.URL].
func (s *Set) URLs() []string {
	urls := make([]string, len(s.servers))
	for i, server := range s.servers {
		urls[i] = server.URL()
	}
	return urls
}

// Clients returns each server's [Server.Client].
func (s *Set) Clients() []*redis.Client {
	clients := make([]*redis.Client, len(s.servers))
	for i, server := range s.servers {
		clients[i] = server.Client()
	}
	return clients
}

// Server is one Redis server. Its address stays the same whatever is done to it. A method that cannot do its work
// fails the test and ends the calling goroutine. Faults are done one at a time; the methods may be called from
// several goroutines.
type Server struct {
	// Set by newServer, then read-only.
	t      testing.TB
	node   node
	cfg    config
	client *redis.Client // the test's own

	mu     sync.Mutex // held for as long as a fault takes; guards the fields below
	frozen bool
	dead   bool
	apart  bool // disconnected from its network
}

// node is one server as its provider knows it. A method is called only in a state that it makes sense in.
type node interface {
	addr() string                                // host:port, never changes
	socket() string                              // path of its unix socket, if there is one
	up(ctx context.Context, keepData bool) error // starts a dead server again
	kill(ctx context.Context) error              // also a frozen one; what it has not executed yet, it never will
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	close(ctx context.Context) error // whatever the state; nothing is left afterwards
}

// netNode is a node whose network can be taken away.
type netNode interface {
	node
	disconnect(ctx context.Context) error
	reconnect(ctx context.Context) error
}

func newServer(t testing.TB, n node, cfg config) *Server {
	s := &Server{t: t, node: n, cfg: cfg}
	s.client = redis.NewClient(&redis.Options{Addr: n.addr(), Password: cfg.password})
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

// closeAll ends all nodes at once. A test that leaves a server behind fails.
func closeAll(t testing.TB, nodes []node) {
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	err := each(len(nodes), func(i int) error {
		if nodes[i] == nil {
			return nil
		}
		return nodes[i].close(ctx)
	})
	if err != nil {
		t.Errorf("servers: clean-up: %v", err)
	}
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.node.addr() }

// URL is the server's address with the password it was started with, if any, as redis.ParseURL takes it.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.cfg.password != "" {
		u.User = url.UserPassword("", s.cfg.password)
	}
	return u.String()
}

// SocketURL is the URL of the same server by its unix socket. Only with [WithUnixSocket].
func (s *Server) SocketURL() string {
	s.t.Helper()
	if s.node.socket() == "" {
		s.t.Fatalf("servers: %s has no unix socket; start it with WithUnixSocket", s.Addr())
	}
	u := url.URL{Scheme: "unix", Path: s.node.socket()}
	if s.cfg.password != "" {
		u.User = url.UserPassword("", s.cfg.password)
	}
	return u.String()
}

// Client is for the test's own looks and edits. It is a plain client with the defaults of go-redis, and closed with
// the test.
func (s *Server) Client() *redis.Client { return s.client }

// Freeze stops the server in its tracks: connections stay open and new ones are accepted, requests are taken in by
// the kernel, nothing answers. It returns once the server stands still.
func (s *Server) Freeze() {
	s.t.Helper()
	s.inflict("freeze", func(ctx context.Context) error {
		switch {
		case s.dead:
			return errors.New("it is dead")
		case s.frozen:
			return nil
		}
		if err := s.node.freeze(ctx); err != nil {
			return err
		}
		s.frozen = true
		return nil
	})
}

// Thaw lets a frozen server go on; it executes what came in meanwhile. It returns once the server answers. A server
// that is not frozen is left alone.
func (s *Server) Thaw() {
	s.t.Helper()
	s.inflict("thaw", func(ctx context.Context) error {
		if !s.frozen {
			return nil
		}
		if err := s.node.thaw(ctx); err != nil {
			return err
		}
		s.frozen = false
		return s.awaitPing(ctx)
	})
}

// Kill ends the server without warning (SIGKILL), frozen or not. It returns once connections are refused. A dead server
// is left alone.
func (s *Server) Kill() {
	s.t.Helper()
	s.inflict("kill", s.killLocked)
}

// Restart kills the server if it runs, and starts it at the same address, EMPTY. It returns once the server answers,
// or runs, if it is disconnected.
func (s *Server) Restart() {
	s.t.Helper()
	s.inflict("restart", func(ctx context.Context) error { return s.restartLocked(ctx, false) })
}

// RestartKeeping is Restart with what the server had on disk: with [WithAOF] all that it answered, with [WithRDB] its
// last SAVE.
func (s *Server) RestartKeeping() {
	s.t.Helper()
	s.inflict("restart", func(ctx context.Context) error {
		if s.cfg.persist == inMemory {
			return errors.New("it keeps nothing; start it with WithAOF or WithRDB")
		}
		return s.restartLocked(ctx, true)
	})
}

// CanDisconnect says whether Disconnect and Reconnect work for this kind of server.
func (s *Server) CanDisconnect() bool {
	_, ok := s.node.(netNode)
	return ok
}

// Disconnect takes the server's network away; the server runs on. It returns once the server cannot be reached. What a
// client sees is up to the engine: with Docker's port proxy connections are closed and refused, without it packets are
// lost. For silence on open connections use Freeze.
func (s *Server) Disconnect() {
	s.t.Helper()
	s.inflict("disconnect", func(ctx context.Context) error {
		n, ok := s.node.(netNode)
		switch {
		case !ok:
			return errors.New("only containers have a network of their own; ask CanDisconnect")
		case s.apart:
			return nil
		}
		if err := n.disconnect(ctx); err != nil {
			return err
		}
		s.apart = true
		return s.awaitSilence(ctx)
	})
}

// Reconnect gives the network back, at the same address. It returns once the server answers, unless it is frozen or
// dead. A server that is connected is left alone.
func (s *Server) Reconnect() {
	s.t.Helper()
	s.inflict("reconnect", func(ctx context.Context) error {
		if !s.apart {
			return nil
		}
		if err := s.node.(netNode).reconnect(ctx); err != nil {
			return err
		}
		s.apart = false
		return s.awaitPing(ctx)
	})
}

// StepClock moves the server's wall clock by d, as if somebody had set it. Only with [WithClock]; embedded nodes have
// it anyway.
func (s *Server) StepClock(d time.Duration) {
	s.t.Helper()
	s.setClock("step the clock of", func(n clockNode) error { return n.stepClock(d) })
}

// ClockRate makes the server's wall clock run faster by a share, from what it shows now: 0.08 is 8 % fast, 0 is the
// right rate. Only with [WithClock], and not on embedded nodes.
func (s *Server) ClockRate(share float64) {
	s.t.Helper()
	s.setClock("set the rate of", func(n clockNode) error { return n.clockRate(share) })
}

func (s *Server) setClock(what string, set func(n clockNode) error) {
	s.t.Helper()
	s.inflict(what, func(context.Context) error {
		n, ok := s.node.(clockNode)
		if !ok {
			return errNoClock
		}
		return set(n)
	})
}

// inflict does one thing to the server, and fails the test if that cannot be done.
func (s *Server) inflict(what string, fault func(ctx context.Context) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Not the test's own context: repairs are done in clean-ups too, when that one has ended.
	ctx, cancel := context.WithTimeout(context.Background(), faultTimeout)
	defer cancel()
	if err := fault(ctx); err != nil {
		s.t.Fatalf("servers: cannot %s %s: %v", what, s.Addr(), err)
	}
}

// killLocked ends the server. s.mu must be held.
func (s *Server) killLocked(ctx context.Context) error {
	if s.dead {
		return nil
	}
	if err := s.node.kill(ctx); err != nil {
		return err
	}
	s.dead, s.frozen = true, false
	return awaitRefusal(ctx, s.Addr())
}

// restartLocked ends the server and starts it again. s.mu must be held.
func (s *Server) restartLocked(ctx context.Context, keepData bool) error {
	if err := s.killLocked(ctx); err != nil {
		return err
	}
	if err := s.node.up(ctx, keepData); err != nil {
		return err
	}
	s.dead = false
	return s.awaitPing(ctx)
}

// awaitPing returns once the server answers, or at once if it cannot be expected to.
func (s *Server) awaitPing(ctx context.Context) error {
	if s.dead || s.frozen || s.apart {
		return nil
	}
	return await(ctx, nil, s.probe().ping)
}

// awaitSilence returns once the server does not answer any more.
func (s *Server) awaitSilence(ctx context.Context) error {
	return await(ctx, nil, func(ctx context.Context) error {
		if err := s.probe().ping(ctx); err != nil {
			return nil
		}
		return errors.New("it still answers")
	})
}

func (s *Server) probe() probe { return probe{addr: s.Addr(), password: s.cfg.password} }

// each calls f for 0 to n-1, all at once, and joins what they return.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("server %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

package redlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

// peer is a model server behind net.Pipe, and faults. It runs in virtual time.
type peer struct {
	*model.Server
	name string

	// Guarded by Mu.
	conns   map[net.Conn]struct{}
	refuse  bool          // connections are refused
	delay   time.Duration // from a command's arrival to its execution
	lag     time.Duration // from its execution to the reply; messages do not wait for it
	gate    chan struct{} // closed: executes; replaced while frozen
	hole    bool          // reads and never executes
	deaf    bool          // pings stay unanswered
	stopped chan struct{}
}

func newPeer(t *testing.T, i int) *peer {
	p := &peer{Server: model.NewServer(), name: fmt.Sprintf("10.0.0.%d:6379", i+1), conns: map[net.Conn]struct{}{},
		gate: make(chan struct{}), stopped: make(chan struct{})}
	close(p.gate)
	t.Cleanup(func() { close(p.stopped); p.cut() })
	return p
}

func newPeers(t *testing.T, n int) []*peer {
	ps := make([]*peer, n)
	for i := range ps {
		ps[i] = newPeer(t, i)
	}
	return ps
}

// testPool is a pool over peers whose clock is virtual, closed by the test's end.
func testPool(t *testing.T, ps []*peer, opts ...Option) *Pool {
	t.Helper()
	p := newOpenPool(t, ps, opts...)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newOpenPool(t *testing.T, ps []*peer, opts ...Option) *Pool {
	t.Helper()
	return newOpenPoolAt(t, ps, &suspendClock{}, opts...)
}

// newPoolAt is testPool with a second clock that the test can move on its own.
func newPoolAt(t *testing.T, ps []*peer, c *suspendClock, opts ...Option) *Pool {
	t.Helper()
	p := newOpenPoolAt(t, ps, c, opts...)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newOpenPoolAt(t *testing.T, ps []*peer, c *suspendClock, opts ...Option) *Pool {
	t.Helper()
	o, err := newPoolOptions(append([]Option{WithRestartGuard(0)}, opts...)) // the peers are fresh servers
	require.NoError(t, err)
	need, err := o.quorum.of(len(ps))
	require.NoError(t, err)
	return start(settings(ps), o, need, c.clock())
}

// suspendClock is virtual time, and a clock that runs on while that stands still.
type suspendClock struct {
	ahead atomic.Int64
	hook  func() time.Duration // when set, read at every reading
}

func (c *suspendClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

func (c *suspendClock) clock() clock {
	epoch := time.Now()
	return clock{epoch: epoch, missed: new(atomic.Int64), since: func() time.Duration {
		d := time.Since(epoch) + time.Duration(c.ahead.Load())
		if c.hook != nil {
			d += c.hook()
		}
		return d
	}}
}

// settings are what a user's clients of the peers would have.
func settings(ps []*peer) []*redis.Options {
	var all []*redis.Options
	for _, p := range ps {
		c := redis.NewClient(&redis.Options{Addr: p.name, Dialer: p.dial})
		all = append(all, c.Options())
		_ = c.Close()
	}
	return all
}

func (p *peer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.refuse {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	p.conns[server] = struct{}{}
	type job struct {
		args []string
		at   time.Time
	}
	jobs := make(chan job, 100_000)
	go func() { // reads: what arrived is executed even if the connection is closed meanwhile
		defer close(jobs)
		r := bufio.NewReader(server)
		for {
			args, err := model.ReadCommand(r)
			if err != nil {
				return
			}
			jobs <- job{args, time.Now()}
		}
	}()
	out := make(chan []byte, 100_000) // written in its order, replies and messages
	go func() {
		for b := range out {
			if _, err := server.Write(b); err != nil {
				_ = server.Close()
				for range out {
				}
				return
			}
		}
		_ = server.Close()
	}()
	go func() {
		open := true
		session := model.Session{Push: func(b []byte) { out <- b }}
		for j := range jobs {
			if !p.ready(j.at) {
				break
			}
			if j.args[0] == "ping" && p.isDeaf() {
				continue
			}
			reply, cut := p.Execute(&session, j.args, nil)
			if cut {
				open = false
				_ = server.Close()
			}
			if lag := p.lagging(); lag > 0 {
				time.Sleep(lag)
			}
			if open {
				out <- reply
			}
		}
		p.Hangup(&session)
		close(out)
		p.Mu.Lock()
		delete(p.conns, server)
		p.Mu.Unlock()
	}()
	return client, nil
}

// ready waits until a command that arrived at the given time may be executed; false if it never will.
func (p *peer) ready(arrived time.Time) bool {
	p.Mu.Lock()
	wait, hole := time.Until(arrived.Add(p.delay)), p.hole
	p.Mu.Unlock()
	if hole {
		<-p.stopped
		return false
	}
	if wait > 0 {
		time.Sleep(wait)
	}
	p.Mu.Lock()
	gate := p.gate
	p.Mu.Unlock()
	select {
	case <-gate:
		return true
	case <-p.stopped:
		return false
	}
}

func (p *peer) lagging() (lag time.Duration) {
	p.do(func() { lag = p.lag })
	return lag
}

func (p *peer) isDeaf() (deaf bool) {
	p.do(func() { deaf = p.deaf })
	return deaf
}

// do changes the peer, or looks at it, under its mutex.
func (p *peer) do(f func()) { p.Do(f) }

func (p *peer) step(d time.Duration) { p.Step(d) }

func (p *peer) speed(rate float64) { p.Speed(rate) }

func (p *peer) cut() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *peer) restart() { p.do(func() { p.refuse = false }) }

// reboot restarts the server's process, empty or with what it keeps.
func (p *peer) reboot(keeping bool) {
	p.restart()
	p.Restart(keeping)
	p.cut()
}

// marker is the peer's marker.
func (p *peer) marker() (s string) {
	p.do(func() { s = p.Fields["marker"] })
	return s
}

// refuseAll cuts every connection, and refuses new ones.
func (p *peer) refuseAll() {
	p.do(func() { p.refuse = true })
	p.cut()
}

func (p *peer) freeze() { p.do(func() { p.gate = make(chan struct{}) }) }

func (p *peer) thaw() { p.do(func() { close(p.gate) }) }

func (p *peer) setHole(on bool) { p.do(func() { p.hole = on }) }

func (p *peer) flush() { p.Flush() }

// owner is the value of a key, "" if there is none.
func (p *peer) owner(key string) string { return p.Owner(key) }

func (p *peer) count(name string) (n int) {
	p.do(func() { n = p.Counts[name] })
	return n
}

// owners counts the peers on which key holds the token.
func owners(ps []*peer, key, token string) int {
	n := 0
	for _, p := range ps {
		if p.owner(key) == token {
			n++
		}
	}
	return n
}

// leftovers counts the keys on all peers.
func leftovers(ps []*peer) int {
	n := 0
	for _, p := range ps {
		p.do(func() { n += p.Live() })
	}
	return n
}

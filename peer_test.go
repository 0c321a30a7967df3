package redlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// peer is a small Redis behind net.Pipe: the commands that this package sends, its three scripts rewritten in Go, and
// faults. It runs in virtual time. That the scripts behave like this on a real server is shown in integration/.
type peer struct {
	name string

	mu      sync.Mutex
	keys    map[string]value
	fields  map[string]string // of the hash with the marker and the counters
	scripts map[string]string // name by digest
	run     string            // run id, new with every start
	started time.Time
	info    map[string]string // what INFO says instead
	conns   map[net.Conn]struct{}
	counts  map[string]int
	clock   time.Duration     // added to the time
	rate    float64           // how much faster than true time the clock runs, as a share
	since   time.Time         // from when on
	refuse  bool              // connections are refused
	delay   time.Duration     // from a command's arrival to its execution
	gate    chan struct{}     // closed: executes; replaced while frozen
	hole    bool              // reads and never executes
	drop    string            // cut the connection instead of the next reply to this
	errs    map[string]string // error replies, by command or script
	raw     map[string]string // raw replies
	stopped chan struct{}
}

type value struct {
	s       string
	foreign bool // a hash, say
	expires time.Time
}

func newPeer(t *testing.T, i int) *peer {
	p := &peer{name: fmt.Sprintf("10.0.0.%d:6379", i+1), keys: map[string]value{}, fields: map[string]string{}, conns: map[net.Conn]struct{}{},
		counts: map[string]int{}, errs: map[string]string{}, raw: map[string]string{}, gate: make(chan struct{}),
		scripts: map[string]string{}, info: map[string]string{}, stopped: make(chan struct{})}
	close(p.gate)
	p.run, p.started = newNonce(), time.Now().Add(-24*time.Hour)
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
	p.mu.Lock()
	defer p.mu.Unlock()
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
			args, err := readCommand(r)
			if err != nil {
				return
			}
			jobs <- job{args, time.Now()}
		}
	}()
	go func() {
		open := true
		var queue [][]string // of a transaction
		for j := range jobs {
			if !p.ready(j.at) {
				break
			}
			reply, cut := p.execute(&queue, j.args)
			if cut {
				open = false
				_ = server.Close()
			}
			if open {
				_, err := io.WriteString(server, reply)
				open = err == nil
			}
		}
		_ = server.Close()
		p.mu.Lock()
		delete(p.conns, server)
		p.mu.Unlock()
	}()
	return client, nil
}

// ready waits until a command that arrived at the given time may be executed; false if it never will.
func (p *peer) ready(arrived time.Time) bool {
	p.mu.Lock()
	wait, hole := time.Until(arrived.Add(p.delay)), p.hole
	p.mu.Unlock()
	if hole {
		<-p.stopped
		return false
	}
	if wait > 0 {
		time.Sleep(wait)
	}
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-p.stopped:
		return false
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	args := make([]string, n)
	for i := range args {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, err
		}
		args[i] = string(buf[:size])
	}
	return args, nil
}

func (p *peer) execute(queue *[][]string, args []string) (reply string, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case args[0] == "multi":
		*queue = [][]string{}
		return "+OK\r\n", false
	case args[0] == "exec":
		all := fmt.Sprintf("*%d\r\n", len(*queue))
		for _, each := range *queue {
			one, c := p.executeOne(each)
			all, cut = all+one, cut || c
		}
		*queue = nil
		return all, cut
	case *queue != nil:
		*queue = append(*queue, args)
		return "+QUEUED\r\n", false
	}
	return p.executeOne(args)
}

// executeOne runs one command. p.mu must be held.
func (p *peer) executeOne(args []string) (reply string, cut bool) {
	name := strings.ToLower(args[0])
	if name == "script" {
		name += " " + args[1]
	}
	if name == "evalsha" {
		script, ok := p.scripts[args[1]]
		if !ok {
			return "-NOSCRIPT No matching script. Please use EVAL.\r\n", false
		}
		name = script
	}
	if name == "batch" {
		return p.batch(args[2:])
	}
	p.counts[name]++
	if e := p.errs[name]; e != "" {
		return "-" + e + "\r\n", false
	}
	if raw := p.raw[name]; raw != "" {
		return raw, false
	}
	reply = p.reply(name, args)
	if p.drop == name {
		p.drop = ""
		return "", true
	}
	return reply, false
}

func (p *peer) reply(name string, args []string) string {
	switch name {
	case "hello":
		return "*2\r\n$5\r\nproto\r\n:2\r\n"
	case "time":
		now := p.now()
		return fmt.Sprintf("*2\r\n$%d\r\n%d\r\n$6\r\n%06d\r\n", len(strconv.FormatInt(now.Unix(), 10)), now.Unix(), now.Nanosecond()/1000)
	case "script load":
		s := newScript(args[2])
		p.scripts[s.sha] = "mark"
		if s == batchScript {
			p.scripts[s.sha] = "batch"
		}
		if i := slices.Index(scripts[:], s); i >= 0 {
			p.scripts[s.sha] = op(i).String()
		}
		return bulk(s.sha)
	case "script exists":
		known := 0
		if _, ok := p.scripts[args[2]]; ok {
			known = 1
		}
		return fmt.Sprintf("*1\r\n:%d\r\n", known)
	case "info":
		info := map[string]string{"run_id": p.run, "role": "master", "maxmemory": "0", "maxmemory_policy": "noeviction",
			"cluster_enabled": "0", "uptime_in_seconds": strconv.Itoa(int(p.now().Sub(p.started).Seconds()))}
		maps.Copy(info, p.info)
		text := "# Server\r\n"
		for name, value := range info {
			text += name + ":" + value + "\r\n"
		}
		return bulk(text)
	case "hget":
		if v, ok := p.fields[args[2]]; ok {
			return bulk(v)
		}
		return "$-1\r\n"
	case "hmget":
		all := fmt.Sprintf("*%d\r\n", len(args)-2)
		for _, name := range args[2:] {
			if value, ok := p.fields[name]; ok {
				all += bulk(value)
			} else {
				all += "$-1\r\n"
			}
		}
		return all
	case "mark":
		return p.mark(args[4:])
	case "acquire", "renew", "release":
		n, _ := strconv.Atoi(args[2])
		return p.script(name, args[3:3+n], args[3+n:])
	}
	return "-ERR unknown command\r\n"
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// now is the server's time. p.mu must be held.
func (p *peer) now() time.Time {
	now := time.Now().Add(p.clock)
	if p.rate != 0 {
		now = now.Add(time.Duration(p.rate * float64(time.Since(p.since))))
	}
	return now
}

func (p *peer) step(d time.Duration) { p.do(func() { p.clock += d }) }

func (p *peer) speed(rate float64) { p.do(func() { p.rate, p.since = rate, time.Now() }) }

// get is a key's value, and whether there is one. p.mu must be held.
func (p *peer) get(key string) (value, bool) {
	v, ok := p.keys[key]
	if ok && !v.expires.IsZero() && !p.now().Before(v.expires) {
		delete(p.keys, key)
		return value{}, false
	}
	return v, ok
}

func (p *peer) set(key, token, ms string) {
	n, _ := strconv.ParseInt(ms, 10, 64)
	p.keys[key] = value{s: token, expires: p.now().Add(time.Duration(n) * time.Millisecond)}
}

// do changes the peer, or looks at it, under its mutex.
func (p *peer) do(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *peer) restart() { p.do(func() { p.refuse = false }) }

// reboot restarts the server's process, empty or with what it keeps.
func (p *peer) reboot(keeping bool) {
	p.do(func() {
		p.refuse, p.run, p.started = false, newNonce(), p.now()
		clear(p.scripts)
		if !keeping {
			clear(p.keys)
			clear(p.fields)
		}
	})
	p.cut()
}

// marker is the peer's marker.
func (p *peer) marker() (s string) {
	p.do(func() { s = p.fields["marker"] })
	return s
}

func (p *peer) freeze() { p.do(func() { p.gate = make(chan struct{}) }) }

func (p *peer) thaw() { p.do(func() { close(p.gate) }) }

func (p *peer) setHole(on bool) { p.do(func() { p.hole = on }) }

func (p *peer) flush() { p.do(func() { clear(p.keys); clear(p.fields) }) }

// owner is the value of a key, "" if there is none.
func (p *peer) owner(key string) (s string) {
	p.do(func() {
		if v, ok := p.get(key); ok {
			s = v.s
		}
	})
	return s
}

func (p *peer) count(name string) (n int) {
	p.do(func() { n = p.counts[name] })
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
		p.do(func() {
			for k := range p.keys {
				if _, ok := p.get(k); ok {
					n++
				}
			}
		})
	}
	return n
}

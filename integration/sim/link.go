package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock/internal/peer"
)

// link is the network between one client and one node: each connection's packets arrive in order and late, and some of
// them get lost, stuck, or arrive twice.
type link struct {
	c *client
	n *node

	there gate         // nothing gets through to the node
	back  gate         // ... to the client
	slow  atomic.Int64 // an extra delay
	worse atomic.Int64 // how many of 10 000 packets have an accident
	asked atomic.Int64 // packets under way whose reply has not come back

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func newLink(c *client, n *node) *link {
	return &link{c: c, n: n, rng: c.w.rng(actorLink, c.index*100+n.index)}
}

func (l *link) mend() {
	if !l.c.gone() {
		l.there.open()
		l.back.open()
	}
	l.slow.Store(0)
	l.worse.Store(0)
}

// fate is what becomes of one packet.
type fate struct {
	there, back time.Duration // how long it and its reply take
	lost        bool          // it never arrives, and the connection breaks
	mute        bool          // the reply never arrives, and the connection breaks
	part        bool          // only some of its commands arrive before the connection breaks
	again       time.Duration // a copy arrives so much later; 0: none
}

func (l *link) fate() (f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, r := l.c.w.plan, l.rng
	slow := time.Duration(l.slow.Load())
	f.there = time.Duration(r.ExpFloat64()*float64(p.Delay)/2) + p.Delay/2
	f.back = time.Duration(r.ExpFloat64()*float64(p.Delay)/2) + p.Delay/2
	if most := p.NodeTimeout / 3; slow == 0 {
		f.there, f.back = min(f.there, most), min(f.back, most)
	}
	f.there += time.Duration(r.Int64N(int64(slow) + 1))
	f.back += time.Duration(r.Int64N(int64(slow) + 1))
	if l.c.w.quiet.Load() || r.Int64N(10_000) >= l.worse.Load() {
		return f
	}
	s := l.c.w.stats
	switch r.IntN(6) {
	case 0:
		f.lost = true
		s.fault("request lost")
	case 1:
		f.mute = true
		s.fault("reply lost")
	case 2:
		f.part = true
		s.fault("cut within a pipeline")
	case 3:
		f.there = between(r, p.NodeTimeout, 4*time.Second)
		s.fault("request lands late")
	case 4:
		f.back = between(r, p.NodeTimeout/2, p.NodeTimeout*2)
		s.fault("reply late")
	case 5:
		f.again = between(r, time.Millisecond, 3*time.Second)
		if r.IntN(2) == 0 {
			f.again = between(r, 1, p.NodeTimeout)
		}
		s.fault("request replayed")
	}
	return f
}

// close keeps a way shut.
func (l *link) close(way *gate, d time.Duration) {
	if !l.c.gone() {
		way.shut(d)
	}
}

// dial is the client's dialer for this node.
func (l *link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	l.c.machine.thaw()
	f := l.fate()
	if !sleep(ctx, f.there) || !l.there.pass(ctx) || !l.back.pass(ctx) {
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	life, err := l.n.admit(far)
	if err != nil {
		return nil, err
	}
	l.c.w.wires.Go(func() { l.serve(far, life) })
	return &socket{Conn: near, m: l.c.machine, run: l.c.w.wires.Go, closed: make(chan struct{})}, nil
}

// sleep is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}

// serve carries packets and replies until the connection ends. What has left the client arrives even if the client has
// closed its end meanwhile: so the bytes of an old connection land behind those of a new one.
func (l *link) serve(far net.Conn, life int64) {
	defer l.n.dismiss(far)
	r := readers.Get().(*bufio.Reader)
	r.Reset(far)
	defer readers.Put(r)
	pushes := make(chan []byte, 256)
	session := peer.Session{Push: func(b []byte) {
		select {
		case pushes <- b:
		default: // a client that does not read: a server would close the connection sooner or later
		}
	}}
	out := oneByOne{far, make(chan struct{}, 1)}
	l.c.w.wires.Go(func() { l.push(out, pushes) })
	defer func() {
		l.n.Hangup(&session)
		close(pushes)
	}()
	var reply []byte
	for {
		packet, err := readPacket(r)
		if err != nil {
			return
		}
		if reply, err = l.carry(&session, packet, reply[:0], life); err != nil {
			return
		}
		if _, err := out.Write(reply); err != nil {
			return
		}
	}
}

// oneByOne lets one write at a time. A pipe does so too, but by a mutex, and who waits for a mutex keeps virtual time from
// going on.
type oneByOne struct {
	net.Conn
	busy chan struct{}
}

func (c oneByOne) Write(p []byte) (int, error) {
	c.busy <- struct{}{}
	defer func() { <-c.busy }()
	return c.Conn.Write(p)
}

// push carries what the server sends unasked: messages of releases.
func (l *link) push(far net.Conn, pushes <-chan []byte) {
	for b := range pushes {
		f := l.fate()
		if f.lost || f.mute || f.part {
			continue // lost, without a word
		}
		time.Sleep(f.back)
		l.back.pass(always)
		if _, err := far.Write(b); err == nil && f.again > 0 {
			_, _ = far.Write(b)
		}
	}
}

// errBroken is the end of a connection.
var errBroken = errors.New("broken")

// carry takes a packet to the node's process and returns what comes back, when it does.
func (l *link) carry(s *peer.Session, packet [][]string, reply []byte, life int64) ([]byte, error) {
	l.asked.Add(1)
	defer l.asked.Add(-1)
	f := l.fate()
	time.Sleep(f.there)
	l.there.pass(always)
	if f.lost || !l.n.wait(life) {
		return nil, errBroken
	}
	if f.part {
		packet, f.mute = packet[:len(packet)/2], true
	}
	reply, cut := l.execute(s, packet, reply)
	if cut || f.mute {
		return nil, errBroken
	}
	if f.again > 0 {
		l.replay(packet, f.again)
	}
	time.Sleep(f.back)
	l.back.pass(always)
	return reply, nil
}

func (l *link) execute(s *peer.Session, packet [][]string, reply []byte) (_ []byte, cut bool) {
	for _, args := range packet {
		var c bool
		reply, c = l.n.Execute(s, args, reply)
		cut = cut || c
	}
	return reply, cut
}

// replay executes a packet once more, on a connection that nobody reads, be it in another life.
func (l *link) replay(packet [][]string, after time.Duration) {
	l.c.w.behind.Go(func() {
		time.Sleep(after)
		if l.n.wait(l.n.life.Load()) && !l.n.isDown() {
			l.c.w.check.replayed(packet)
			l.execute(&peer.Session{}, packet, nil)
		}
	})
}

// readPacket reads what arrived together.
func readPacket(r *bufio.Reader) (packet [][]string, err error) {
	for {
		args, err := peer.ReadCommand(r)
		if err != nil {
			return nil, err
		}
		if packet = append(packet, args); r.Buffered() == 0 {
			return packet, nil
		}
	}
}

// socket is the client's end of a connection: a frozen process neither reads nor writes.
type socket struct {
	net.Conn
	m   *machine
	run func(func())

	out    chan []byte // subscriptions under way; nil before the first
	once   sync.Once
	closed chan struct{}
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.m.thaw()
	return n, err
}

func (s *socket) Write(p []byte) (int, error) {
	if bytes.Contains(p[:min(len(p), 40)], []byte("subscribe\r\n")) || s.out != nil {
		return s.later(p)
	}
	s.m.thaw()
	return s.Conn.Write(p)
}

// later writes from a goroutine of its own, as a kernel does. go-redis keeps a mutex while it subscribes, and who waits
// for a mutex keeps virtual time from going on.
func (s *socket) later(p []byte) (int, error) {
	if s.out == nil {
		s.out = make(chan []byte, 256)
		s.run(func() {
			for {
				select {
				case b := <-s.out:
					s.m.thaw()
					_, _ = s.Conn.Write(b)
				case <-s.closed:
					return
				}
			}
		})
	}
	select {
	case s.out <- bytes.Clone(p):
	case <-s.closed:
		return 0, net.ErrClosed
	}
	return len(p), nil
}

func (s *socket) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

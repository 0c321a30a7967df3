package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// maxConnections is how many client connections a proxy takes, counting those
// that the client closed and whose requests wait for a thaw. Further ones are
// closed at once, as Redis does past maxclients.
const maxConnections = 1024

// Proxy is a TCP proxy that breaks connections on demand. It stands in front of
// every [Node], and with [NewProxy] in front of any Redis.
//
// All methods are safe for concurrent use. The faults add up; each stays until
// it is switched off.
type Proxy struct {
	addr    string // this group is set by newProxy, then read-only
	release func() // gives the port back
	attach  func(*link)
	running sync.WaitGroup // accept loops, both directions of each link, pumps

	mu       sync.Mutex // guards the fields below, and link.tainted and link.orphan
	state    gate
	holes    [2]bool      // by direction
	drops    int          // replies to drop, cutting the connection
	mutes    int          // replies to drop, silencing the connection
	replays  int          // pieces of requests to send twice
	random   *rand.Rand   // of the jitter; nil while there is none
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	closed   bool
}

// gate is what every waiting byte must know. A new value replaces it on each
// change, and closes the old one's channel.
type gate struct {
	frozen  bool
	delay   time.Duration
	jitter  time.Duration // at most so much more, by chunk.luck
	rate    int           // bytes a second of each direction of a connection; 0: no limit
	changed chan struct{}
}

// NewProxy starts a proxy on a free port of 127.0.0.1 in front of target, the
// address of a Redis: host:port, or the path of a unix socket. It passes bytes
// on as they are, so any version of the protocol works, and TLS does if the
// certificate is good for 127.0.0.1. The caller closes it.
func NewProxy(target string) (*Proxy, error) {
	network := "tcp"
	if strings.HasPrefix(target, "/") {
		network = "unix"
	}
	p, err := newProxy(func(l *link) {
		// pump runs one goroutine; it ends with its link, and Close waits for it.
		l.proxy.running.Go(func() { pump(l, network, target) })
	})
	if err != nil {
		return nil, err
	}
	if err := p.Refuse(false); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// newProxy makes a proxy that gives each new link to attach, which must not
// block and must see to it that the link is closed in the end. It has an
// address and refuses connections.
func newProxy(attach func(*link)) (*Proxy, error) {
	addr, release, err := reserve()
	if err != nil {
		return nil, err
	}
	return &Proxy{
		addr: addr, release: release, attach: attach,
		state: gate{changed: make(chan struct{})},
		links: map[*link]struct{}{},
	}, nil
}

// Addr returns the proxy's address, 127.0.0.1:port. It never changes.
func (p *Proxy) Addr() string { return p.addr }

// Freeze stops all traffic, as if the server had been sent SIGSTOP: connections
// are accepted, bytes pile up, nothing is answered. What arrives meanwhile is
// passed on after [Proxy.Thaw], also for connections that the client has closed
// by then. Replies that have not left yet wait as well.
func (p *Proxy) Freeze() { p.change(func(g *gate) { g.frozen = true }) }

// Thaw ends a freeze.
func (p *Proxy) Thaw() { p.change(func(g *gate) { g.frozen = false }) }

// Delay adds d to the way of each reply; 0 ends it, also for replies on their
// way. It is latency, not a rate limit: replies keep their order and travel
// side by side.
func (p *Proxy) Delay(d time.Duration) { p.change(func(g *gate) { g.delay = d }) }

// DropReplies cuts the connection at the next n replies, each instead of
// passing it on: the request was executed, the client sees its connection
// break. A reply is what the server sends at once, whatever it answers: that of
// a pipeline counts as one, and so does that of a connection's set-up.
// [Node.DropReplies] can tell commands apart. 0 ends it.
func (p *Proxy) DropReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = max(n, 0)
}

// SwallowReplies is [Proxy.DropReplies] with silence in place of the cut: the
// connection stays open and never answers again, while what the client sends
// is still executed.
func (p *Proxy) SwallowReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mutes = max(n, 0)
}

// Cut closes all current connections. Requests that have arrived are still
// executed; replies that have not left are lost.
func (p *Proxy) Cut() {
	for _, l := range p.current() {
		l.cut()
	}
}

// Refuse makes new connections be refused and kills the present ones with all
// that waits in them; Refuse(false) listens again, at the same address.
func (p *Proxy) Refuse(on bool) error {
	if on {
		p.hangUp(false)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("redlocktest: the proxy is closed")
	}
	if p.listener != nil {
		return nil
	}
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("redlocktest: listening: %w", err)
	}
	p.listener = ln
	// accept runs one goroutine; it ends when its listener is closed, and Close waits for it.
	p.running.Go(func() { p.accept(ln) })
	return nil
}

// hangUp stops listening, if forGood for ever, and kills all links. It reports
// whether it was the first to do so for good.
func (p *Proxy) hangUp(forGood bool) bool {
	p.mu.Lock()
	first := forGood && !p.closed
	p.closed = p.closed || forGood
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	for _, l := range p.current() {
		l.kill()
	}
	return first
}

// Pending returns the number of request bytes that have arrived and were not
// passed on: what a frozen server has in its sockets.
func (p *Proxy) Pending() int {
	n := 0
	for _, l := range p.current() {
		n += l.in.waiting()
	}
	return n
}

// Connections returns the number of connections, counting those that the client
// has closed and whose requests wait for a thaw.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close kills all connections, gives the port back and returns when none of the
// proxy's goroutines is left.
func (p *Proxy) Close() error {
	first := p.hangUp(true)
	p.running.Wait()
	if first {
		p.release()
	}
	return nil
}

// accept serves ln until it is closed.
func (p *Proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // out of file descriptors: wait for one
			continue
		}
		l := newLink(p, conn)
		if !p.remember(l, ln) {
			_ = conn.Close()
			continue
		}
		// Both end with the link; Close kills it and waits for them.
		p.running.Go(l.receive)
		p.running.Go(l.deliver)
		p.attach(l)
	}
}

// remember puts l on the list, unless ln was closed meanwhile or the list is full.
func (p *Proxy) remember(l *link, ln net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != ln || len(p.links) >= maxConnections {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

func (p *Proxy) gate() gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Proxy) change(f func(*gate)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.state)
	close(p.state.changed)
	p.state.changed = make(chan struct{})
}

// dropReply is asked before each reply of l, and ends its replies if one is to
// be dropped.
func (p *Proxy) dropReply(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !l.out.live():
	case p.drops > 0:
		p.drops--
		l.dropRest()
	case p.mutes > 0:
		p.mutes--
		l.muteRest()
	}
}

// pump connects l with a server. It dials when the first request comes, so that
// a frozen or black-holed client never reaches the server.
func pump(l *link, network, target string) {
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	// 1. The first request.
	buf := make([]byte, readSize)
	n, err := l.Read(buf)
	if err != nil {
		return
	}
	// 2. The server. watch ends with pump.
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		select {
		case <-l.dead:
			cancel()
		case <-ctx.Done():
		}
	})
	defer cancel() // before watch.Wait
	dialer := net.Dialer{Timeout: 5 * time.Second}
	server, err := dialer.DialContext(ctx, network, target)
	if err != nil {
		l.reset()
		return
	}
	defer func() { _ = server.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	// 3. Replies. Ends when the server closes, which also ends the loop below.
	var talk conversation
	var replies sync.WaitGroup
	defer replies.Wait()
	replies.Go(func() {
		defer func() { _ = l.Close() }()
		passReplies(l, server, &talk)
	})
	// 4. Requests. After the last one the server closes once it has executed them all.
	for err == nil {
		again := talk.ask(buf[:n], l.proxy.takeReplay)
		if _, err = server.Write(buf[:n]); err == nil && again {
			_, err = server.Write(buf[:n])
		}
		if err == nil {
			n, err = l.Read(buf)
		}
	}
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

func passReplies(l *link, server net.Conn, talk *conversation) {
	buf := make([]byte, readSize)
	for {
		n, err := server.Read(buf)
		if pass := talk.reply(buf[:n]); len(pass) > 0 {
			if _, werr := l.Write(pass); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

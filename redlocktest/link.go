package redlocktest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	requestLimit = 1 << 20  // bytes of requests a link holds; then it stops reading
	replyLimit   = 4 << 20  // bytes of replies a link holds; then it is cut
	readSize     = 32 << 10 // bytes read at a time
)

// link is one client connection of a proxy. The client is on one side; on the
// other, the node reads requests and writes replies as if the link were its
// socket. Between them are two queues in which the faults happen.
//
//	client -- receive --> in  -- Read  --> node
//	client <-- deliver -- out <-- Write -- node
type link struct {
	proxy  *Proxy // this group is set by newLink, then read-only
	client net.Conn
	in     *queue
	out    *queue
	closed chan struct{} // the node closed its side
	gone   chan struct{} // the client closed its side
	dead   chan struct{} // killed: nothing that waits is of use to anybody

	closeOnce sync.Once
	killOnce  sync.Once
	parts     atomic.Int32 // receive, deliver and the node's side: what still runs

	tainted [2]bool   // guarded by proxy.mu: bytes are missing on that way, so nothing more may pass
	orphan  bool      // the same: the server's side died without a word
	resume  time.Time // when the node may read on; the node's side alone uses it
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{
		proxy: p, client: client,
		in: newQueue(requestLimit), out: newQueue(replyLimit),
		closed: make(chan struct{}), gone: make(chan struct{}), dead: make(chan struct{}),
	}
	l.parts.Store(3)
	return l
}

// partDone is called once by each of the three parts; the last one takes the
// link off the proxy's list.
func (l *link) partDone() {
	if l.parts.Add(-1) == 0 {
		l.proxy.forget(l)
	}
}

// receive moves what the client sends into the queue, until the client closes.
// What has arrived by then is still executed.
func (l *link) receive() {
	defer l.partDone()
	defer close(l.gone)
	defer l.in.finish()
	buf := make([]byte, readSize)
	for {
		n, err := l.client.Read(buf)
		if n > 0 && !l.proxy.swallows(l, requests) && !l.accept(append([]byte(nil), buf[:n]...)) {
			return
		}
		if err != nil {
			return
		}
	}
}

// accept queues data for the node and waits while the queue is full. It
// reports false if nobody will read it.
func (l *link) accept(data []byte) bool {
	for !l.in.push(chunk{data: data}) {
		select {
		case <-l.in.space:
		case <-l.closed:
			return false
		case <-l.dead:
			return false
		}
	}
	return true
}

// Read gives the node what the client sent. It blocks while the proxy is
// frozen, and returns io.EOF once the client has closed and all it sent is read.
func (l *link) Read(b []byte) (int, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		g := l.proxy.gate()
		var due <-chan time.Time
		switch wait := time.Until(l.resume); {
		case g.frozen:
		case g.rate > 0 && wait > 0:
			timer.Reset(wait)
			due = timer.C
		default:
			c, ok, done := l.in.head()
			if done {
				return 0, io.EOF
			}
			if ok {
				n, pause := g.ration(min(len(b), len(c.data)))
				copy(b, c.data[:n])
				l.in.advance(n)
				if l.proxy.swallows(l, requests) {
					continue
				}
				l.resume = time.Now().Add(pause)
				return n, nil
			}
		}
		select {
		case <-l.in.ready:
		case <-due:
		case <-g.changed:
		case <-l.closed:
			return 0, net.ErrClosed
		case <-l.dead:
			return 0, net.ErrClosed
		}
	}
}

// Write takes a reply from the node. It never blocks; a client that leaves too
// many replies unread is cut.
func (l *link) Write(b []byte) (int, error) {
	select {
	case <-l.closed:
		return 0, net.ErrClosed
	default:
	}
	l.proxy.dropReply(l)
	if !l.out.push(chunk{append([]byte(nil), b...), time.Now(), l.proxy.luck()}) {
		l.cut()
	}
	return len(b), nil
}

// Close is the node closing its side: what it wrote is still delivered, what it
// did not read is dropped.
func (l *link) Close() error {
	l.closeOnce.Do(func() {
		close(l.closed)
		l.in.abort()
		l.out.finish()
		l.partDone()
	})
	return nil
}

// deliver writes the replies to the client, each after its delay and none while
// the proxy is frozen, and closes the client behind the last one.
func (l *link) deliver() {
	defer l.partDone()
	defer l.client.Close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var resume time.Time // of a trickle
	for {
		g := l.proxy.gate()
		c, ok, done := l.out.head()
		if done {
			l.linger()
			return
		}
		// 1. Wait for a reply, for the thaw, for the delay: one of them, then look again.
		var due <-chan time.Time
		arrival := c.at.Add(g.delay + time.Duration(c.luck*float64(g.jitter)))
		if g.rate > 0 && resume.After(arrival) {
			arrival = resume
		}
		switch wait := time.Until(arrival); {
		case !ok, g.frozen:
		case wait > 0:
			timer.Reset(wait)
			due = timer.C
		default:
			// 2. Pass it on, or as much of it as may pass at once.
			n, pause := g.ration(len(c.data))
			resume = time.Now().Add(pause)
			l.out.advance(n)
			if l.proxy.swallows(l, replies) {
				continue
			}
			if _, err := l.client.Write(c.data[:n]); err != nil {
				l.out.abort()
				return
			}
			continue
		}
		select {
		case <-l.out.ready:
		case <-due:
		case <-g.changed:
		case <-l.dead:
			return
		}
	}
}

// linger keeps the client of a connection whose server died without a word waiting
// until it closes.
func (l *link) linger() {
	if !l.proxy.orphaned(l) {
		return
	}
	select {
	case <-l.gone:
	case <-l.dead:
	}
}

// dropRest lets the replies so far through and closes the client behind them.
// What the node writes from now on vanishes.
func (l *link) dropRest() { l.out.finish() }

// muteRest lets the replies so far through and then keeps the client waiting:
// what the node writes from now on vanishes.
func (l *link) muteRest() { l.out.silence() }

// cut closes the client. Replies that were not delivered are lost; requests
// that have arrived are still executed.
func (l *link) cut() {
	l.out.abort()
	_ = l.client.Close()
}

// kill ends both sides at once and drops everything.
func (l *link) kill() {
	l.killOnce.Do(func() {
		close(l.dead)
		l.cut()
		_ = l.Close()
	})
}

// reset is kill, seen by the client as a refusal in the middle of a connection.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	l.kill()
}

// nodeSide is a link as the net.Conn that an embedded server wants. It ignores
// deadlines.
type nodeSide struct{ *link }

func (nodeSide) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (nodeSide) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (nodeSide) SetDeadline(time.Time) error      { return nil }
func (nodeSide) SetReadDeadline(time.Time) error  { return nil }
func (nodeSide) SetWriteDeadline(time.Time) error { return nil }

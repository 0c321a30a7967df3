package redlock

import (
	"cmp"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// What a reply to one of our requests may look like. A server is free to lie: go-redis allocates what a length header
// announces and recurses into nested replies, so both are bounded before it sees them.
const (
	maxReplyBulk  = 1 << 20 // bytes of one string
	maxReplyItems = 4096    // elements of one array or map
	maxReplyDepth = 16      // arrays within arrays
	maxReplyLine  = 64 << 10
)

const errReplyShape = reason("sent something that is not a Redis reply, or one too large to be meant for us")

// wire is one network connection to a node. It counts what was written, so that we know whether a byte may have left,
// and refuses replies of impossible size.
type wire struct {
	net.Conn
	written atomic.Int64
	shape   replyShape // used by Read alone, like the fields below; a connection has one reader
	broken  bool
	first   string // the beginning of the first reply
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.written.Add(int64(n))
	if err != nil && w.first == "" && !isTimeout(err) {
		err = cmp.Or(w.lastWords(), err)
	}
	return n, err
}

// lastWordsIn is how long a server that has closed a new connection may take to say why: what it said is there, or lost.
const lastWordsIn = 10 * time.Millisecond

// lastWords reads why a connection was closed before anything was read: the alert of a TLS server that asks for a
// certificate comes behind the handshake, so the first write fails. nil if nothing of the kind is there.
func (w *wire) lastWords() error {
	_ = w.SetReadDeadline(time.Now().Add(lastWordsIn))
	var p [maxGreeting]byte
	_, err := w.Read(p[:])
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" {
		return alert
	}
	return nil
}

func (w *wire) Read(p []byte) (int, error) {
	if w.broken {
		return 0, errReplyShape
	}
	n, err := w.Conn.Read(p)
	if w.first == "" {
		w.first = string(p[:min(n, maxGreeting)])
	}
	if !w.shape.accept(p[:n]) {
		w.broken = true
		return 0, errReplyShape
	}
	return n, err
}

// maxGreeting is how much of a first reply is kept.
const maxGreeting = 80

// turnedAway is what a server says to a connection that it closes unasked: there are too many, or it is protected. nil
// if it has said nothing of the kind. go-redis takes it for the answer to HELLO, goes on, and finds a broken pipe.
func (w *wire) turnedAway() error {
	line, _, _ := strings.Cut(w.first, "\r\n")
	line, _, _ = strings.Cut(line, ".") // the rest advises how to reconfigure it
	if strings.HasPrefix(line, "-ERR max number of clients") || strings.HasPrefix(line, "-DENIED") {
		return reason(line[1:])
	}
	return nil
}

// replyShape follows the framing of a RESP2 or RESP3 stream, byte by byte, without keeping any of it.
// https://redis.io/docs/latest/develop/reference/protocol-spec/
type replyShape struct {
	kind  byte               // first byte of the header line being read; 0 between lines
	line  int                // its length so far
	size  int                // the number it announces
	neg   bool               // "-1": a nil
	skip  int                // bytes of a string still to come, with its line end
	depth int                // open arrays and maps
	inner bool               // an error came within a reply, as in that of EXEC
	open  [maxReplyDepth]int // how many elements each still lacks
}

// accept takes the next bytes of the stream; false means that no sane reply goes on like this.
func (s *replyShape) accept(p []byte) bool {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, len(p))
			s.skip -= n
			p = p[n:]
			continue
		}
		c := p[0]
		p = p[1:]
		if s.kind == 0 {
			s.kind, s.line, s.size, s.neg = c, 0, 0, false
			s.inner = s.inner || c == '-' && s.depth > 0
			continue
		}
		if c == '\n' {
			if !s.endLine() {
				return false
			}
			s.kind = 0
			continue
		}
		if s.line++; s.line > maxReplyLine {
			return false
		}
		if s.sized() && !s.digit(c) {
			return false
		}
	}
	return true
}

// sized says whether the line's number is a length.
func (s *replyShape) sized() bool { return s.isBulk() || s.isAggregate() }

func (s *replyShape) isBulk() bool { return s.kind == '$' || s.kind == '=' || s.kind == '!' }

func (s *replyShape) isAggregate() bool {
	switch s.kind {
	case '*', '%', '~', '>', '|':
		return true
	}
	return false
}

func (s *replyShape) digit(c byte) bool {
	switch {
	case c == '\r':
		return true
	case c == '-' && s.line == 1:
		s.neg = true
		return true
	case c < '0' || c > '9':
		return false
	}
	s.size = s.size*10 + int(c-'0')
	return s.size <= maxReplyBulk
}

// endLine opens what the header announced, or counts it as an element of what is open.
func (s *replyShape) endLine() bool {
	switch {
	case s.isBulk() && !s.neg:
		s.skip = s.size + len("\r\n")
	case s.isAggregate() && !s.neg && s.size > 0:
		if s.size > maxReplyItems || s.depth == maxReplyDepth {
			return false
		}
		n := s.size
		if s.kind == '%' || s.kind == '|' { // each entry is a key and a value
			n *= 2
		}
		if s.kind == '|' { // attributes precede a reply and are no element themselves
			n++
		}
		s.open[s.depth] = n
		s.depth++
		return true
	}
	for s.depth > 0 {
		if s.open[s.depth-1]--; s.open[s.depth-1] > 0 {
			break
		}
		s.depth--
	}
	return true
}

package redlocktest

import (
	"bytes"
	"strconv"
	"sync"
)

// ReplayRequests sends the next n pieces of requests to the server twice, as if the
// network had doubled them: the first replies arrive, the second ones are thrown
// away. A piece is what the client sent at once, a pipeline as a rule; one that is
// more than fits into one read of the proxy is left alone. 0 ends it. The proxy
// has to read what passes for this, so it does not work with TLS, nor for
// connections that subscribe, switch replies off or are in the middle of MULTI.
// [Node.ReplayRequests] can tell commands apart; use that for nodes.
func (p *Proxy) ReplayRequests(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replays = max(n, 0)
}

func (p *Proxy) takeReplay() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replays == 0 {
		return false
	}
	p.replays--
	return true
}

// conversation follows the requests and replies of one connection, to know which
// replies belong to a replay.
type conversation struct {
	mu      sync.Mutex // guards the fields below
	asked   respScanner
	replied respScanner
	pending []expected
}

// expected are so many replies that are to be passed on or dropped.
type expected struct {
	replies int
	drop    bool
}

// ask is told of a piece of requests before it is sent, and says whether to send it
// once more.
func (c *conversation) ask(piece []byte, replay func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.asked.idle()
	n := 0
	for rest := piece; len(rest) > 0; {
		used, done := c.asked.next(rest)
		rest = rest[used:]
		if done {
			n++
		}
	}
	c.pending = append(c.pending, expected{n, false})
	again := whole && c.asked.idle() && n > 0 && replay()
	if again {
		c.pending = append(c.pending, expected{n, true})
	}
	return again
}

// reply returns what of a piece of replies is to be passed on.
func (c *conversation) reply(piece []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pass []byte
	for len(piece) > 0 {
		for len(c.pending) > 0 && c.pending[0].replies == 0 {
			c.pending = c.pending[1:]
		}
		used, done := c.replied.next(piece)
		if len(c.pending) == 0 || !c.pending[0].drop {
			pass = append(pass, piece[:used]...)
		}
		piece = piece[used:]
		if done && !c.replied.push && len(c.pending) > 0 {
			c.pending[0].replies--
		}
	}
	return pass
}

// respScanner finds where values end in a stream of RESP2 or RESP3.
type respScanner struct {
	line []byte // the beginning of a line whose end has not come
	skip int    // bytes of a string that are still to come
	open []int  // for each array that is open, how many of its values are still to come
	push bool   // the value is a push, which is no reply
	busy bool   // in the middle of a value
}

func (s *respScanner) idle() bool { return !s.busy }

// next takes bytes from data, up to the end of the value at the most, and reports
// how many and whether the value is complete.
func (s *respScanner) next(data []byte) (used int, done bool) {
	for used < len(data) {
		if !s.busy {
			s.busy, s.push = true, data[used] == '>'
		}
		if s.skip > 0 {
			n := min(s.skip, len(data)-used)
			s.skip -= n
			used += n
			if s.skip == 0 && s.complete() {
				return used, true
			}
			continue
		}
		end := bytes.IndexByte(data[used:], '\n')
		if end < 0 {
			s.line = append(s.line, data[used:]...)
			return len(data), false
		}
		line := append(s.line, data[used:used+end]...)
		s.line = s.line[:0]
		used += end + 1
		if s.header(line) && s.complete() {
			return used, true
		}
	}
	return used, false
}

// header reads the first line of a value and reports whether the value ends with it.
func (s *respScanner) header(line []byte) bool {
	if len(line) == 0 {
		return true
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return true
		}
		s.skip = n + len("\r\n")
		return false
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	default:
		return true
	}
	if n <= 0 {
		return true
	}
	s.open = append(s.open, n)
	return false
}

// complete is the end of a value, and perhaps of arrays around it; it reports
// whether nothing is open any more.
func (s *respScanner) complete() bool {
	for len(s.open) > 0 {
		top := len(s.open) - 1
		if s.open[top]--; s.open[top] > 0 {
			return false
		}
		s.open = s.open[:top]
	}
	s.busy = false
	return true
}

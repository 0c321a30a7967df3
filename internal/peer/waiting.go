package peer

import (
	"fmt"
	"strconv"
	"time"
)

// What a server does for those who wait: subscriptions, and the scripts peek, join and leave.

// subscribe is SUBSCRIBE and UNSUBSCRIBE. s.Mu must be held.
func (s *Server) subscribe(c *Session, name string, channels []string, out []byte) []byte {
	if c.Push == nil {
		return failure(out, "NOPERM this user has no permissions to access one of the channels used as arguments")
	}
	for _, channel := range channels {
		if name == "subscribe" {
			if s.Subscribers[channel] == nil {
				s.Subscribers[channel] = map[*Session]bool{}
			}
			s.Subscribers[channel][c] = true
			c.channels[channel] = true
		} else {
			s.unsubscribe(c, channel)
		}
		out = number(bulk(bulk(array(out, 3), name), channel), int64(len(c.channels)))
	}
	return out
}

func (s *Server) unsubscribe(c *Session, channel string) {
	delete(c.channels, channel)
	delete(s.Subscribers[channel], c)
	if len(s.Subscribers[channel]) == 0 {
		delete(s.Subscribers, channel)
	}
}

// Hangup forgets a connection that has ended.
func (s *Server) Hangup(c *Session) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for channel := range c.channels {
		s.unsubscribe(c, channel)
	}
}

// publish is PUBLISH: how many were told. s.Mu must be held.
func (s *Server) publish(channel, text string) int64 {
	s.Counts["publish"]++
	if s.Errs["publish"] != "" {
		return -1
	}
	for c := range s.Subscribers[channel] {
		if s.Mute {
			continue
		}
		c.Push(bulk(bulk(bulk(array(nil, 3), "message"), channel), text))
	}
	return int64(len(s.Subscribers[channel]))
}

// peek is scripts/peek.lua. s.Mu must be held.
func (s *Server) peek(keys []string, out []byte) []byte {
	now := s.Now()
	out = array(out, len(keys))
	for _, k := range keys {
		v, ok := s.get(k, now)
		switch {
		case !ok:
			out = number(out, -2)
		case v.Expires.IsZero():
			out = number(out, -1)
		default:
			out = number(out, v.left(now))
		}
	}
	return out
}

// join is scripts/join.lua. s.Mu must be held.
func (s *Server) join(queues, args []string, out []byte) []byte {
	now := s.Now()
	life, _ := strconv.ParseInt(args[1], 10, 64)
	latest, _ := strconv.ParseInt(args[2], 10, 64)
	if now.Unix() > latest {
		return number(out, -1)
	}
	most := int64(0)
	for _, q := range queues {
		queue := s.queue(q, now)
		if queue == nil {
			queue = &Queue{Places: map[string]int64{}}
			s.Queues[q] = queue
		}
		places, before := queue.Places, int64(0)
		queue.Until = 0
		for place, expires := range places {
			if expires < now.UnixMilli() {
				delete(places, place)
			} else if place < args[0] {
				before++
			}
		}
		places[args[0]] = now.UnixMilli() + life
		for _, expires := range places {
			queue.Until = max(queue.Until, expires+1)
		}
		most = max(most, before)
	}
	return number(number(array(out, 2), most), now.UnixMicro())
}

// leave is scripts/leave.lua. s.Mu must be held.
func (s *Server) leave(queues, args []string) (left int64) {
	clock := s.Now()
	now := clock.UnixMilli()
	for i, q := range queues {
		queue := s.queue(q, clock)
		if queue == nil {
			continue
		}
		if _, has := queue.Places[args[0]]; has {
			left++
			delete(queue.Places, args[0])
		}
		first := ""
		for place, expires := range queue.Places {
			if expires >= now && (first == "" || place < first) {
				first = place
			}
		}
		if first != "" {
			s.publish(args[1+i], fmt.Sprintf("%s %d", first, clock.UnixMicro()))
		}
	}
	return left
}

// Queue is a hash of places.
type Queue struct {
	Places map[string]int64 // until when each is kept, by the server's clock in milliseconds
	Until  int64            // when the hash expires
}

// queue is nil where there is none. s.Mu must be held.
func (s *Server) queue(name string, now time.Time) *Queue {
	q := s.Queues[name]
	if q != nil && (now.UnixMilli() > q.Until || len(q.Places) == 0) {
		delete(s.Queues, name)
		return nil
	}
	return q
}

// Waiting counts the places in all queues. s.Mu must be held.
func (s *Server) Waiting() (n int) {
	for name := range s.Queues {
		if q := s.queue(name, s.Now()); q != nil {
			n += len(q.Places)
		}
	}
	return n
}

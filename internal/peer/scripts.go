package peer

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// The scripts, rewritten in Go. Each runs at one moment of the server's clock.

const (
	maxFence = uint64(9e15) // where scripts say that the counters are used up
	fenceLen = 16           // digits
)

func fenceText(f uint64) string {
	digits := strconv.FormatUint(f, 10)
	return strings.Repeat("0", max(0, fenceLen-len(digits))) + digits
}

// batch is scripts/batch.lua. s.Mu must be held.
func (s *Server) batch(args []string, out []byte) (_ []byte, cut bool) {
	began := len(out)
	n, _ := strconv.Atoi(args[0])
	keys, args := args[1:n], args[n:]
	state, marker, latest, args := args[0], args[1], args[2], args[3:]
	out = array(out, n)
	var buf []byte
	for _, key := range keys {
		name, ttl, k := args[0], "", 2
		switch name {
		case "release":
		case "renew":
			ttl, k = args[4], 5
		default:
			name, ttl, k = "acquire", name, 4
		}
		s.Counts[name]++
		if raw := s.Raw[name]; raw != "" {
			return append(out[:began], raw...), false
		}
		buf = buf[:0]
		if name == "release" {
			buf = s.script(name, []string{key}, []string{args[1], state[:len(state)-len("node")] + "free:"}, buf)
		} else if marker == "" && s.Fields["marker"] != "" { // here this comes before the latest second
			buf = bulk(buf, s.Fields["marker"])
		} else if s.Errs[name] == "" {
			buf = s.script(name, []string{key, state}, []string{args[1], ttl, latest, marker, args[2], args[3]}, buf)
		}
		if e := s.Errs[name]; e != "" {
			buf = failure(buf[:0], e)
		}
		args = args[k:]
		if s.Drop == name {
			s.Drop, cut = "", true
		}
		out = batched(name, buf, out)
	}
	return number(out, s.Now().UnixMicro()), cut
}

// batched appends a script's reply as the batch script gives it.
func batched(name string, reply, out []byte) []byte {
	line, rest, _ := strings.Cut(string(reply), "\r\n")
	switch {
	case line[0] == '-':
		return bulk(out, line[1:])
	case name == "acquire" && line == "*3":
		lines := strings.Split(rest, "\r\n")
		return append(array(out, 2), lines[0]+"\r\n"+lines[2]+"\r\n"...)
	case name == "acquire" && line[0] == ':' && line[1] != '-':
		return number(out, 1)
	}
	return append(out, reply...)
}

// script runs a script, but for batch and mark. s.Mu must be held.
func (s *Server) script(name string, keys, args []string, out []byte) []byte {
	now := s.Now()
	switch name {
	case "release":
		return number(out, s.release(keys, args[0], args[1], now))
	case "peek":
		return s.peek(keys, out)
	case "join":
		return s.join(keys, args, out)
	case "leave":
		return number(out, s.leave(keys, args))
	}
	keys = keys[:len(keys)-1]
	marker := s.Fields["marker"]
	latest, _ := strconv.ParseInt(args[2], 10, 64)
	switch {
	case now.Unix() > latest:
		return number(out, -1)
	case args[3] == "" && marker != "":
		return bulk(out, marker)
	}
	steady := args[3] == "" || marker == args[3]
	if name == "renew" {
		return number(out, s.renew(keys, args, steady, now))
	}
	if !steady {
		return number(out, -2)
	}
	return s.acquire(keys, args, now, out)
}

func (s *Server) release(keys []string, token, channel string, now time.Time) (told int64) {
	deleted := false
	for _, k := range keys {
		if v, ok := s.get(k, now); ok && !v.Foreign && v.S == token {
			delete(s.Keys, k)
			deleted = true
			if n := s.publish(channel+k, ""); n < 0 {
				told = -1
			} else if told >= 0 {
				told = max(told, n)
			}
		}
	}
	if deleted && s.Released != nil {
		s.Released(token)
	}
	return told
}

func (s *Server) acquire(keys, args []string, now time.Time, out []byte) []byte {
	token, proposed, stripes := args[0], args[4], args[5:]
	top := ""
	for _, stripe := range stripes {
		top = max(top, s.Fields[stripe])
	}
	fence := proposed
	if top >= proposed {
		n, _ := strconv.ParseUint(top, 10, 64)
		if n >= maxFence {
			return number(out, -3)
		}
		fence = fenceText(n + 1)
	} else if strings.Trim(proposed, "0") == "" {
		fence = fenceText(1)
	}
	for i, k := range keys {
		v, ok := s.get(k, now)
		switch {
		case !ok || v.S == token && !v.Foreign:
		case v.Foreign:
			return failure(out, "WRONGTYPE Operation against a key holding the wrong kind of value")
		default:
			left := int64(-1)
			if !v.Expires.IsZero() {
				left = v.left(now)
			}
			return number(number(array(out, 2), int64(i+1)), left)
		}
	}
	for _, stripe := range stripes {
		s.Fields[stripe] = fence
	}
	ms, _ := strconv.ParseInt(args[1], 10, 64)
	for _, k := range keys {
		if v, ok := s.get(k, now); !ok || !v.Expires.IsZero() && v.left(now) < ms || v.Expires.IsZero() {
			s.set(k, token, ms, now)
		}
	}
	n, _ := strconv.ParseInt(fence, 10, 64)
	s.voted(token, stripes, ms, uint64(n))
	if fence == proposed {
		return number(out, now.UnixMicro())
	}
	return number(number(number(array(out, 3), 0), now.UnixMicro()), n)
}

func (s *Server) renew(keys, args []string, steady bool, now time.Time) int64 {
	token, fence := args[0], args[4]
	missing := false
	for _, k := range keys {
		v, ok := s.get(k, now)
		switch {
		case !ok:
			missing = true
		case v.Foreign || v.S != token:
			if steady {
				return 0
			}
			return -2
		}
	}
	for _, stripe := range args[5:] {
		s.Fields[stripe] = max(s.Fields[stripe], fence)
	}
	ms, _ := strconv.ParseInt(args[1], 10, 64)
	for _, k := range keys {
		s.set(k, token, ms, now)
	}
	switch {
	case !steady:
		return 3
	case missing:
		return 2
	}
	s.voted(token, args[5:], ms, 0)
	return 1
}

func (s *Server) voted(token string, stripes []string, ms int64, fence uint64) {
	if s.Voted != nil {
		s.Voted(token, stripes, time.Duration(ms)*time.Millisecond, fence)
	}
}

func (s *Server) set(key, token string, ms int64, now time.Time) {
	s.Keys[key] = Value{S: token, Expires: now.Add(time.Duration(ms) * time.Millisecond)}
}

// mark is scripts/mark.lua. s.Mu must be held.
func (s *Server) mark(args []string, out []byte) []byte {
	if now := s.Fields["marker"]; now != args[0] {
		return bulk(out, now)
	}
	for pair := range slices.Chunk(args[2:], 2) {
		s.Fields[pair[0]] = max(s.Fields[pair[0]], pair[1])
	}
	s.Fields["marker"] = args[1]
	return number(out, 1)
}

// Package peer is a model of one Redis server, as far as this library knows Redis: the commands that it sends, its scripts
// rewritten in Go, and a clock that can be set. It serves the tests of the root package and the simulator. That a real
// server answers alike is shown in integration/.
package peer

import (
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is the data and the process of one server; how commands reach it is its user's affair.
type Server struct {
	Mu sync.Mutex // guards the fields below; Do holds it

	Keys    map[string]Value
	Fields  map[string]string // of the hash with the marker and the counters
	Scripts map[string]string // name by digest; those of witnesses are empty

	Run     string            // run id, new with every start
	Started time.Time         // by its own clock
	Info    map[string]string // what INFO says instead
	Counts  map[string]int    // commands and scripts that were called

	Clock time.Duration // added to the time
	Rate  float64       // how much faster than true time the clock runs, as a share
	Since time.Time     // from when on

	Queues      map[string]*Queue            // of those who wait in order
	Subscribers map[string]map[*Session]bool // by channel
	Mute        bool                         // messages are lost

	Errs map[string]string // error replies, by command or script
	Raw  map[string]string // raw replies
	Drop string            // cut the connection instead of the next reply to this

	// Voted is told of every vote for a token, with Mu held: the counters of its keys, its TTL, and the fence that a grant
	// answered; 0: still ours.
	Voted func(token string, stripes []string, ttl time.Duration, fence uint64)
	// Released is told of every token that gives a key back, in the same way.
	Released func(token string)
}

// Value is what a key holds.
type Value struct {
	S       string
	Foreign bool      // a hash, say
	Expires time.Time // by the server's clock; zero: never
}

// NewServer is an empty server that has been running for a day.
func NewServer() *Server {
	return &Server{Keys: map[string]Value{}, Fields: map[string]string{}, Scripts: map[string]string{}, Info: map[string]string{},
		Queues: map[string]*Queue{}, Subscribers: map[string]map[*Session]bool{}, Counts: map[string]int{}, Errs: map[string]string{}, Raw: map[string]string{}, Run: newRun(), Started: time.Now().Add(-24 * time.Hour)}
}

func newRun() string {
	var bits [20]byte
	_, _ = rand.Read(bits[:])
	return hex.EncodeToString(bits[:])
}

// Do changes the server, or looks at it.
func (s *Server) Do(f func()) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	f()
}

// Now is the server's time. s.Mu must be held.
func (s *Server) Now() time.Time {
	now := time.Now()
	if s.Rate != 0 {
		return now.Add(s.Clock + time.Duration(s.Rate*float64(now.Sub(s.Since))))
	}
	return now.Add(s.Clock)
}

// Step sets the server's clock forward, or back.
func (s *Server) Step(d time.Duration) { s.Do(func() { s.Clock += d }) }

// Speed has the server's clock run faster than true time by a share, or slower.
func (s *Server) Speed(rate float64) {
	s.Do(func() {
		s.Clock = time.Until(s.Now())
		s.Rate, s.Since = rate, time.Now()
	})
}

// Restart is a new process, empty or with what the old one kept.
func (s *Server) Restart(keeping bool) {
	s.Do(func() {
		s.Run, s.Started = newRun(), s.Now()
		clear(s.Scripts)
		clear(s.Subscribers)
		if !keeping {
			clear(s.Queues)
			clear(s.Keys)
			clear(s.Fields)
		}
	})
}

// Flush is FLUSHALL.
func (s *Server) Flush() {
	s.Do(func() {
		clear(s.Queues)
		clear(s.Keys)
		clear(s.Fields)
	})
}

// Snapshot is a copy of the data.
func (s *Server) Snapshot() (keys map[string]Value, fields map[string]string) {
	s.Do(func() { keys, fields = maps.Clone(s.Keys), maps.Clone(s.Fields) })
	return keys, fields
}

// Get is a key's value, and whether there is one. s.Mu must be held.
func (s *Server) Get(key string) (Value, bool) { return s.get(key, s.Now()) }

// get is Get at a moment of the server's clock. Servers count whole milliseconds, and a key is there until its last one is
// over.
func (s *Server) get(key string, now time.Time) (Value, bool) {
	v, ok := s.Keys[key]
	if ok && !v.Expires.IsZero() && v.left(now) < 0 {
		delete(s.Keys, key)
		return Value{}, false
	}
	return v, ok
}

// left is how many milliseconds a key that expires has left, as PTTL says.
func (v Value) left(now time.Time) int64 { return v.Expires.UnixMilli() - now.UnixMilli() }

// Owner is the value of a key, "" if there is none.
func (s *Server) Owner(key string) (owner string) {
	s.Do(func() {
		if v, ok := s.Get(key); ok {
			owner = v.S
		}
	})
	return owner
}

// Live counts the keys that are there. s.Mu must be held.
func (s *Server) Live() (n int) {
	for k := range s.Keys {
		if _, ok := s.Get(k); ok {
			n++
		}
	}
	return n
}

// Session is one client's connection, as far as the server remembers it.
type Session struct {
	Push func([]byte) // sends what nobody has asked for, without blocking; where it is nil the server refuses subscriptions

	queue    [][]string // of a transaction; nil outside of one
	channels map[string]bool
}

// Execute runs one command and appends the reply to out. cut says that the connection is to be closed instead.
func (s *Server) Execute(c *Session, args []string, out []byte) (_ []byte, cut bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch {
	case args[0] == "multi":
		c.queue = [][]string{}
		return append(out, "+OK\r\n"...), false
	case args[0] == "exec":
		out = array(out, len(c.queue))
		for _, each := range c.queue {
			var one bool
			out, one = s.execute(each, out)
			cut = cut || one
		}
		c.queue = nil
		return out, cut
	case args[0] == "subscribe", args[0] == "unsubscribe":
		s.Counts[args[0]]++
		if e := s.Errs[args[0]]; e != "" {
			return failure(out, e), false
		}
		if c.channels == nil {
			c.channels = map[string]bool{}
		}
		return s.subscribe(c, args[0], args[1:], out), false
	case args[0] == "ping" && len(c.channels) > 0:
		return bulk(bulk(array(out, 2), "pong"), ""), false
	case c.queue != nil:
		c.queue = append(c.queue, args)
		return append(out, "+QUEUED\r\n"...), false
	}
	return s.execute(args, out)
}

func (s *Server) execute(args []string, out []byte) (_ []byte, cut bool) {
	name := strings.ToLower(args[0])
	if name == "script" {
		name += " " + args[1]
	}
	if name == "evalsha" {
		script, ok := s.Scripts[args[1]]
		if !ok {
			return failure(out, "NOSCRIPT No matching script. Please use EVAL."), false
		}
		name = script
	}
	if name == "batch" {
		return s.batch(args[2:], out)
	}
	s.Counts[name]++
	if e := s.Errs[name]; e != "" {
		return failure(out, e), false
	}
	if raw := s.Raw[name]; raw != "" {
		return append(out, raw...), false
	}
	kept := len(out)
	out = s.reply(name, args, out)
	if s.Drop == name {
		s.Drop = ""
		return out[:kept], true
	}
	return out, false
}

func (s *Server) reply(name string, args []string, out []byte) []byte {
	switch name {
	case "hello":
		return append(out, "*2\r\n$5\r\nproto\r\n:2\r\n"...)
	case "time":
		now := s.Now()
		micros := strconv.Itoa(now.Nanosecond()/1000 + 1_000_000)[1:]
		return bulk(bulk(array(out, 2), strconv.FormatInt(now.Unix(), 10)), micros)
	case "script load":
		sum := sha1.Sum([]byte(args[2]))
		sha := hex.EncodeToString(sum[:])
		s.Scripts[sha] = scriptName(args[2])
		return bulk(out, sha)
	case "script exists":
		_, known := s.Scripts[args[2]]
		return number(array(out, 1), map[bool]int64{true: 1}[known])
	case "info":
		return bulk(out, s.info())
	case "hget":
		return s.field(args[2], out)
	case "hmget":
		out = array(out, len(args)-2)
		for _, name := range args[2:] {
			out = s.field(name, out)
		}
		return out
	case "mark":
		return s.mark(args[4:], out)
	case "acquire", "renew", "release", "peek", "join", "leave":
		n, _ := strconv.Atoi(args[2])
		return s.script(name, args[3:3+n], args[3+n:], out)
	case "ping":
		return append(out, "+PONG\r\n"...)
	}
	return failure(out, "ERR unknown command")
}

func (s *Server) field(name string, out []byte) []byte {
	if v, ok := s.Fields[name]; ok {
		return bulk(out, v)
	}
	return nothing(out)
}

// scriptName tells a script by its first line, "-- name: what it does"; "" for one that is never called.
func scriptName(source string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(source, "-- "), ":")
	switch name {
	case "acquire", "renew", "release", "batch", "mark", "peek", "join", "leave":
		return name
	}
	return ""
}

func (s *Server) info() string {
	fields := [...][2]string{{"run_id", s.Run}, {"role", "master"}, {"maxmemory", "0"}, {"maxmemory_policy", "noeviction"},
		{"cluster_enabled", "0"}, {"uptime_in_seconds", strconv.Itoa(int(s.Now().Sub(s.Started).Seconds()))}}
	var text strings.Builder
	text.WriteString("# Server\r\n")
	for _, f := range fields {
		if other, ok := s.Info[f[0]]; ok {
			f[1] = other
		}
		text.WriteString(f[0] + ":" + f[1] + "\r\n")
	}
	return text.String()
}

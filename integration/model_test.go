package integration_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pair is a real server and the model of one, with the same data and clocks that stand still unless they are moved.
type pair struct {
	t      require.TestingT
	conn   net.Conn
	r      *bufio.Reader
	model  *peer.Server
	own    peer.Session
	ear    *bufio.Reader     // of a connection that is subscribed to two of the channels
	pushed []byte            // what the model has sent to its like
	digest map[string]string // of the scripts
}

// The model that the simulator and the tests of the root package play with answers as a server does, and remembers the
// same, whatever it is asked.
func TestTheModelServerDoesWhatARealOneDoes(t *testing.T) {
	set := servers.Start(t, 1, servers.WithClock(), servers.WithProvider(servers.Processes))
	server := set.Server(0)
	server.ClockRate(-1)
	conn, err := net.Dial("tcp", server.Addr())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ear := subscribed(t, server.Addr())
	calls := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		p := &pair{t: rt, conn: conn, r: bufio.NewReader(conn), ear: ear, model: peer.NewServer(), digest: map[string]string{}}
		p.begin()
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch what := rapid.SampledFrom([]string{"call", "call", "call", "batch", "batch", "mark", "wait", "wait", "clock", "data"}).Draw(rt, "what"); what {
			case "call":
				args := p.call(rt, calls)
				p.count(args, p.both(args...), calls)
			case "batch":
				p.both(p.batch(rt, calls)...)
			case "mark":
				p.both(p.mark(rt)...)
			case "wait":
				args := p.waiting(rt)
				p.count(args, p.both(args...), calls)
			case "clock":
				d := time.Duration(rapid.SampledFrom([]int{1, 4, 5, 6, 19, 20, 21, 300, 999, 1000, 1001}).Draw(rt, "ms")) * time.Millisecond
				server.StepClock(d)
				p.model.Step(d)
			case "data":
				p.data(rt)
			}
			p.compare()
		}
	})
	for _, reply := range []string{"granted", "granted with another fence", "denied", "late", "not steady", "marker", "used up", "WRONGTYPE", "1", "2", "3", "0", "-2", "told", "not the first", "missing"} {
		require.Positive(t, calls[reply], "no call was answered with %q: %v", reply, calls)
	}
}

const stateName = "redlock:node"

var modelKeys = []string{"k1", "k2", "k3"}

// begin empties the server and sets the model's clock to the server's.
func (p *pair) begin() {
	p.ask("FLUSHALL")
	for _, name := range []string{"acquire", "renew", "release", "batch", "mark", "peek", "join", "leave"} {
		source, err := os.ReadFile("../scripts/" + name + ".lua")
		require.NoError(p.t, err)
		sum := sha1.Sum(source)
		p.digest[name] = hex.EncodeToString(sum[:])
		p.both("script", "load", string(source))
	}
	now := p.now()
	p.model.Rate, p.model.Since = -1, time.Now().Round(0) // by the wall clock alone, to the nanosecond
	p.model.Clock = now.Sub(p.model.Since)
	session := &peer.Session{Push: func(b []byte) { p.pushed = append(p.pushed, b...) }}
	p.model.Execute(session, append([]string{"subscribe"}, heardChannels...), nil)
	require.Equal(p.t, now.UnixMicro(), p.model.Now().UnixMicro())
}

func (p *pair) now() time.Time {
	parts := strings.Fields(strings.NewReplacer("[", "", "]", "", `"`, "").Replace(p.ask("TIME")))
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	require.NoError(p.t, err)
	micros, err := strconv.ParseInt(parts[1], 10, 64)
	require.NoError(p.t, err)
	return time.Unix(seconds, micros*1000)
}

// both asks both, and the answers must be the same.
func (p *pair) both(args ...string) string {
	real := p.ask(args...)
	out, cut := p.model.Execute(&p.own, args, nil)
	require.False(p.t, cut)
	said, err := readReply(bufio.NewReader(strings.NewReader(string(out))))
	require.NoError(p.t, err)
	require.Equal(p.t, real, said, "%q", args)
	return real
}

// ask asks the server.
func (p *pair) ask(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := p.conn.Write([]byte(b.String()))
	require.NoError(p.t, err)
	reply, err := readReply(p.r)
	require.NoError(p.t, err)
	return reply
}

// readReply is a reply as text; of errors their first word, for scripts add where they come from.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	head := strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(head)
	switch line[0] {
	case '-':
		return "error " + strings.Fields(head)[0], nil
	case '$':
		if n < 0 {
			return "nil", nil
		}
		text := make([]byte, n+2)
		for at := 0; at < len(text); {
			k, err := r.Read(text[at:])
			if err != nil {
				return "", err
			}
			at += k
		}
		if s := string(text[:n]); !strings.HasPrefix(s, "WRONGTYPE") {
			return strconv.Quote(s), nil
		}
		return "error WRONGTYPE", nil
	case '*':
		all := make([]string, n)
		for i := range all {
			if all[i], err = readReply(r); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(all, " ") + "]", nil
	}
	return head, nil
}

// compare reads everything from both.
func (p *pair) compare() {
	for _, k := range modelKeys {
		kind := p.ask("TYPE", k)
		v, ok := p.model.Get(k)
		switch {
		case !ok:
			require.Equal(p.t, "none", kind, k)
		case v.Foreign:
			require.Equal(p.t, "hash", kind, k)
		default:
			require.Equal(p.t, strconv.Quote(v.S), p.ask("GET", k), k)
			left := int64(-1)
			if !v.Expires.IsZero() {
				left = v.Expires.UnixMilli() - p.model.Now().UnixMilli()
			}
			require.Equal(p.t, strconv.FormatInt(left, 10), p.ask("PTTL", k), k)
		}
	}
	for _, f := range []string{"marker", "1", "2"} {
		p.both("hget", stateName, f)
	}
	require.Equal(p.t, strconv.Itoa(len(p.model.Fields)), p.ask("HLEN", stateName))

	// Both have said the same to those who listen.
	sent := bufio.NewReader(bytes.NewReader(p.pushed))
	p.pushed = nil
	for {
		want, err := readReply(sent)
		if err != nil {
			break
		}
		got, err := readReply(p.ear)
		require.NoError(p.t, err)
		require.Equal(p.t, want, got)
	}
}

const channels = "redlock:free:"

var heardChannels = []string{channels + "k1", channels + "k2"}

// subscribed is a connection that hears of two keys.
func subscribed(t *testing.T, addr string) *bufio.Reader {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Minute)))
	_, err = fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", strings.Join(heardChannels, " "))
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	for range heardChannels {
		_, err = readReply(r)
		require.NoError(t, err)
	}
	return r
}

// waiting draws a call of those who wait.
func (p *pair) waiting(rt *rapid.T) []string {
	op := rapid.SampledFrom([]string{"peek", "join", "join", "leave", "leave"}).Draw(rt, "op")
	keys := some(rt, modelKeys, "keys")
	place := rapid.SampledFrom([]string{"1-a", "2-b", "2-c"}).Draw(rt, "place")
	args := []string{"evalsha", p.digest[op], strconv.Itoa(len(keys))}
	for _, k := range keys {
		if op != "peek" {
			k = "redlock:queue:" + k
		}
		args = append(args, k)
	}
	switch op {
	case "join":
		life := rapid.SampledFrom([]string{"5", "300", "5000"}).Draw(rt, "life")
		second := p.model.Now().Unix() + int64(rapid.SampledFrom([]int{0, 5, -1}).Draw(rt, "latest"))
		args = append(args, place, life, strconv.FormatInt(second, 10))
	case "leave":
		args = append(args, place)
		for _, k := range keys {
			args = append(args, channels+k)
		}
	}
	return args
}

// count notes answers about those who wait.
func (p *pair) count(args []string, reply string, calls map[string]int) {
	switch args[1] {
	case p.digest["release"]:
		if reply == "1" {
			calls["told"]++
		}
	case p.digest["join"]:
		if reply != "-1" && !strings.HasPrefix(reply, "[0 ") {
			calls["not the first"]++
		}
	case p.digest["peek"]:
		if strings.Contains(reply, "-2") {
			calls["missing"]++
		}
	}
}

// request draws what one acquire, renew or release says beside its keys.
func (p *pair) request(rt *rapid.T) (op, token, ttl, latest, fence string) {
	op = rapid.SampledFrom([]string{"acquire", "acquire", "renew", "renew", "release"}).Draw(rt, "op")
	token = rapid.SampledFrom([]string{"ta", "tb"}).Draw(rt, "token")
	ttl = rapid.SampledFrom([]string{"1", "5", "20", "1000", "5000"}).Draw(rt, "ttl")
	second := p.model.Now().Unix() + int64(rapid.SampledFrom([]int{0, 1, 5, 5, -1}).Draw(rt, "latest"))
	fence = rapid.SampledFrom([]string{"0000000000000000", "0000000000000005", "0000000000000700", "0000000000000701", "8999999999999999", "9000000000000000"}).Draw(rt, "fence")
	return op, token, ttl, strconv.FormatInt(second, 10), fence
}

func marker(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "m1", "m1", "m2"}).Draw(rt, "marker")
}

// some draws keys or stripes.
func some(rt *rapid.T, from []string, name string) []string {
	all := slices.Clone(from)
	return rapid.Permutation(all).Draw(rt, name)[:rapid.IntRange(1, len(all)).Draw(rt, "how many")]
}

func (p *pair) call(rt *rapid.T, calls map[string]int) []string {
	op, token, ttl, latest, fence := p.request(rt)
	keys := some(rt, modelKeys, "keys")
	args := append([]string{"evalsha", p.digest[op], ""}, keys...)
	if op == "release" {
		args[2] = strconv.Itoa(len(keys))
		return append(args, token, channels)
	}
	args[2] = strconv.Itoa(len(keys) + 1)
	args = append(args, stateName, token, ttl, latest, marker(rt), fence)
	stripes := []string{"1", "2"}[:min(2, len(keys))] // a key has one
	return p.noted(op, append(args, some(rt, stripes, "stripes")...), calls)
}

// noted counts what a call will be answered, by asking a copy of the model.
func (p *pair) noted(op string, args []string, calls map[string]int) []string {
	keys, fields := p.model.Snapshot()
	out, _ := p.model.Execute(&peer.Session{}, args, nil)
	p.model.Keys, p.model.Fields = keys, fields
	reply, _ := readReply(bufio.NewReader(strings.NewReader(string(out))))
	switch {
	case reply == "error WRONGTYPE":
		calls["WRONGTYPE"]++
	case reply == "-1":
		calls["late"]++
	case reply[0] == '"':
		calls["marker"]++
	case op == "renew":
		calls[reply]++
	case reply == "-2":
		calls["not steady"]++
	case reply == "-3":
		calls["used up"]++
	case strings.HasPrefix(reply, "[0 "):
		calls["granted with another fence"]++
	case reply[0] == '[':
		calls["denied"]++
	default:
		calls["granted"]++
	}
	return args
}

func (p *pair) batch(rt *rapid.T, _ map[string]int) []string {
	n := rapid.IntRange(1, 5).Draw(rt, "requests")
	keys, rest := []string{}, []string{stateName, marker(rt), ""}
	for range n {
		op, token, ttl, latest, fence := p.request(rt)
		rest[2] = latest // one for all
		keys = append(keys, rapid.SampledFrom(modelKeys).Draw(rt, "key"))
		stripe := rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "stripe")
		switch op {
		case "release":
			rest = append(rest, op, token)
		case "renew":
			rest = append(rest, op, token, fence, stripe, ttl)
		default:
			rest = append(rest, ttl, token, fence, stripe)
		}
	}
	return append(append([]string{"evalsha", p.digest["batch"], strconv.Itoa(n + 1)}, keys...), rest...)
}

func (p *pair) mark(rt *rapid.T) []string {
	args := []string{"evalsha", p.digest["mark"], "1", stateName, marker(rt), rapid.SampledFrom([]string{"m1", "m2"}).Draw(rt, "new")}
	if rapid.Bool().Draw(rt, "heals") {
		args = append(args, "1", "0000000000000600", "2", "0000000000000800")
	}
	return args
}

// data changes something behind the scripts' back, in both.
func (p *pair) data(rt *rapid.T) {
	key := rapid.SampledFrom(modelKeys).Draw(rt, "key")
	switch rapid.SampledFrom([]string{"foreign", "for ever", "gone", "counter", "no marker", "marker"}).Draw(rt, "data") {
	case "foreign":
		p.ask("DEL", key)
		p.ask("HSET", key, "f", "v")
		p.model.Keys[key] = peer.Value{Foreign: true}
	case "for ever":
		token := rapid.SampledFrom([]string{"ta", "tb", "other"}).Draw(rt, "token")
		p.ask("SET", key, token)
		p.model.Keys[key] = peer.Value{S: token}
	case "gone":
		p.ask("DEL", key)
		delete(p.model.Keys, key)
	case "counter":
		c := rapid.SampledFrom([]string{"0000000000000001", "0000000000000700", "8999999999999998", "9000000000000000"}).Draw(rt, "counter")
		p.ask("HSET", stateName, "1", c)
		p.model.Fields["1"] = c
	case "no marker":
		p.ask("HDEL", stateName, "marker")
		delete(p.model.Fields, "marker")
	case "marker":
		p.ask("HSET", stateName, "marker", "m1")
		p.model.Fields["marker"] = "m1"
	}
}

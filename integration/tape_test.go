package integration_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
)

// tape is a proxy that remembers what went to its server, for it to be sent again, and can forge the replies. It knows
// the connections that subscribe: it can cut them, keep what they ask from the server and lose the messages that they get.
type tape struct {
	target string
	listen net.Listener

	running sync.WaitGroup
	mu      sync.Mutex // guards the fields below
	links   []*taped
	forged  string        // in place of every reply, if not empty
	muted   bool          // messages are lost
	lost    int           // how many were
	shut    chan struct{} // not nil: subscriptions wait until it is closed
	waiting int           // how many do
}

// taped is one connection.
type taped struct {
	client, server net.Conn
	sent           bytes.Buffer // guarded by the tape's mu, like ended
	ended          bool
}

func (c *taped) subscribes() bool {
	return !c.ended && bytes.Contains(c.sent.Bytes(), []byte("\r\nsubscribe\r\n"))
}

// subscribers are the connections that have asked for messages, and have not ended.
func (tp *tape) subscribers() (all []*taped) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, c := range tp.links {
		if c.subscribes() {
			all = append(all, c)
		}
	}
	return all
}

// deafen cuts the connections that subscribe.
func (tp *tape) deafen() {
	for _, c := range tp.subscribers() {
		_ = c.client.Close()
		_ = c.server.Close()
	}
}

// mute has messages lost from now on, or not any more, and returns how many were.
func (tp *tape) mute(on bool) (lost int) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.muted = on
	return tp.lost
}

// shutOff keeps what subscribes from the server, until reopen.
func (tp *tape) shutOff() {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.shut = make(chan struct{})
}

func (tp *tape) reopen() {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if tp.shut != nil {
		close(tp.shut)
		tp.shut = nil
	}
}

// keptOut is how many subscriptions are kept from the server.
func (tp *tape) keptOut() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.waiting
}

// forge replaces all replies from now on; "" ends it.
func (tp *tape) forge(reply string) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.forged = reply
}

// behindTapes puts a tape in front of each server. They end after the test's pools.
func (r *rig) behindTapes() (tapes []*tape, urls []string) {
	r.t.Helper()
	for i := range r.Len() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(r.t, err)
		tp := &tape{target: r.Server(i).Addr(), listen: l}
		tp.running.Go(tp.accept)
		r.last(tp.close)
		tapes, urls = append(tapes, tp), append(urls, "redis://"+l.Addr().String())
	}
	return tapes, urls
}

// accept ends with close, like the goroutines that it starts.
func (tp *tape) accept() {
	for {
		client, err := tp.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", tp.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &taped{client: client, server: server}
		tp.mu.Lock()
		tp.links = append(tp.links, c)
		tp.mu.Unlock()
		tp.running.Go(func() {
			_, _ = io.Copy(io.MultiWriter(recording{tp, c}, server), client)
			_ = server.Close()
		})
		tp.running.Go(func() {
			tp.answer(client, server)
			_ = client.Close()
			tp.mu.Lock()
			c.ended = true
			tp.mu.Unlock()
		})
	}
}

// answer passes replies on until either side ends.
func (tp *tape) answer(client io.Writer, server io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		reply := buf[:n]
		tp.mu.Lock()
		if tp.forged != "" {
			reply = []byte(tp.forged)
		}
		if tp.muted && bytes.Contains(reply, []byte("\r\nmessage\r\n")) {
			reply, tp.lost = nil, tp.lost+1
		}
		tp.mu.Unlock()
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

func (tp *tape) close() {
	tp.reopen()
	_ = tp.listen.Close()
	tp.mu.Lock()
	for _, c := range tp.links {
		_ = c.client.Close()
		_ = c.server.Close()
	}
	tp.mu.Unlock()
	tp.running.Wait()
}

// recording remembers what a connection sends, and keeps subscriptions waiting.
type recording struct {
	tp *tape
	c  *taped
}

func (r recording) Write(p []byte) (int, error) {
	r.tp.mu.Lock()
	defer r.tp.mu.Unlock()
	n, err := r.c.sent.Write(p)
	if shut := r.tp.shut; shut != nil && r.c.subscribes() {
		r.tp.waiting++
		r.tp.mu.Unlock()
		<-shut
		r.tp.mu.Lock()
		r.tp.waiting--
	}
	return n, err
}

// of returns the script calls that were sent for a token, in their order.
func (tp *tape) of(token string) (calls [][]any) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, c := range tp.links {
		in := bufio.NewReader(bytes.NewReader(c.sent.Bytes()))
		for {
			command, err := readCommand(in)
			if err != nil {
				break // the end, or half a command
			}
			if strings.EqualFold(command[0].(string), "evalsha") && slices.Contains(command, any(token)) {
				calls = append(calls, command)
			}
		}
	}
	return calls
}

// creates says whether a script call for one key may create it: evalsha, digest, 2, key, state, token, TTL, last second,
// marker, fence, stripe.
func creates(call []any) bool { return len(call) == 11 }

// lastSecond is the last second at which such a call may be applied.
func lastSecond(call []any) int64 {
	n, _ := strconv.ParseInt(call[7].(string), 10, 64)
	return n
}

// readCommand reads one command as clients send it: an array of bulk strings.
func readCommand(in *bufio.Reader) ([]any, error) {
	number := func(kind byte) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if line[0] != kind {
			return 0, fmt.Errorf("%q instead of %q", line, kind)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	if err != nil {
		return nil, err
	}
	words := make([]any, n)
	for i := range words {
		size, err := number('$')
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		words[i] = string(text[:size])
	}
	return words, nil
}

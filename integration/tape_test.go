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

// tape is a proxy that remembers what went to its server, for it to be sent again, and can forge the replies.
type tape struct {
	target string
	listen net.Listener

	running sync.WaitGroup
	mu      sync.Mutex // guards the fields below
	conns   []net.Conn
	sent    []*bytes.Buffer // one for each connection
	forged  string          // in place of every reply, if not empty
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
		heard := &bytes.Buffer{}
		tp.mu.Lock()
		tp.conns, tp.sent = append(tp.conns, client, server), append(tp.sent, heard)
		tp.mu.Unlock()
		tp.running.Go(func() {
			_, _ = io.Copy(io.MultiWriter(locked{&tp.mu, heard}, server), client)
			_ = server.Close()
		})
		tp.running.Go(func() {
			tp.answer(client, server)
			_ = client.Close()
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
		tp.mu.Unlock()
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

func (tp *tape) close() {
	_ = tp.listen.Close()
	tp.mu.Lock()
	for _, c := range tp.conns {
		_ = c.Close()
	}
	tp.mu.Unlock()
	tp.running.Wait()
}

// locked writes under a mutex.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// of returns the script calls that were sent for a token, in their order.
func (tp *tape) of(token string) (calls [][]any) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, sent := range tp.sent {
		in := bufio.NewReader(bytes.NewReader(sent.Bytes()))
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

package nemesis

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/servers"
)

// A network may deliver a request twice, or long after it was sent. Requests are heard by MONITOR while the step lasts;
// each is sent again, by a connection of our own, after a time that chance decides: at once, or when the lock that it was
// for is long gone.

const (
	listening  = 300 * time.Millisecond // once there was something to hear
	hearFirst  = 2 * time.Second        // how long to wait for that
	replayMost = 200                    // requests of one step and server
)

var errHeardNothing = errors.New("it was asked nothing that could be repeated")

// replay hears what a server is asked, and asks it again.
func replay(w *World, s Step) (func() error, error) {
	return nil, nodes(w, s, func(server *servers.Server) error {
		requests, err := overhear(server)
		if err != nil {
			return err
		}
		if len(requests) == 0 {
			return fmt.Errorf("%s: %w", server.Addr(), errHeardNothing)
		}
		rng := rand.New(rand.NewPCG(s.Chance, 2))
		late := []time.Duration{0, 100 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second}[rng.IntN(4)]
		time.Sleep(late)
		for _, r := range requests {
			// What a server says to a request that comes twice is up to the script; that it could not be asked is our failure.
			var refused interface{ RedisError() }
			if err := do(server, r...); err != nil && !errors.As(err, &refused) {
				return err
			}
			if s.repeated != nil {
				s.repeated.Add(1)
			}
		}
		return nil
	})
}

// overhear returns the script calls that a server gets for a while, none if there were none for long.
func overhear(server *servers.Server) (requests [][]any, err error) {
	conn, err := net.DialTimeout("tcp", server.Addr(), commandTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(hearFirst)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return nil, err
	}
	for lines := bufio.NewReader(conn); len(requests) < replayMost; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return requests, nil // the time is over
		}
		if words := heard(line); len(words) > 0 && strings.EqualFold(words[0].(string), "EVALSHA") {
			if len(requests) == 0 {
				if err := conn.SetDeadline(time.Now().Add(listening)); err != nil {
					return nil, err
				}
			}
			requests = append(requests, words)
		}
	}
	return requests, nil
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// heard takes a line of MONITOR apart: +1700000000.123456 [0 127.0.0.1:4711] "evalsha" "..." "..."
// Commands that a script runs are told of as well, with lua in place of the address; they are nobody's request.
func heard(line string) (words []any) {
	head, rest, ok := strings.Cut(line, "] ")
	if !ok || strings.HasSuffix(head, "lua") {
		return nil
	}
	for _, word := range quoted.FindAllString(rest, -1) {
		text, err := strconv.Unquote(word)
		if err != nil {
			return nil
		}
		words = append(words, text)
	}
	return words
}

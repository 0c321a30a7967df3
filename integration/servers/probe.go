package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// errEnded is returned by await when what it waits for has ended.
var errEnded = errors.New("redis-server has ended")

// probe asks a server one question on a connection of its own. A client with a pool would not do: after a refusal it
// waits before it dials again, and it says so on stderr each time.
type probe struct {
	addr     string
	password string
}

// ping returns nil if the server is there and ready.
func (p probe) ping(ctx context.Context) error {
	reply, err := p.ask(ctx, "PING")
	if err == nil && reply != "PONG" {
		err = fmt.Errorf("PING was answered by %q", reply)
	}
	return err
}

// info returns one field of the server's INFO.
func (p probe) info(ctx context.Context, field string) (string, error) {
	info, err := p.ask(ctx, "INFO", "server")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value, nil
		}
	}
	return "", fmt.Errorf("INFO has no %s", field)
}

// ask takes at most a second, so that whoever waits for a server can ask again.
func (p probe) ask(ctx context.Context, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	replies := bufio.NewReader(conn)
	if p.password != "" {
		if _, err := exchange(conn, replies, "AUTH", p.password); err != nil {
			return "", err
		}
	}
	return exchange(conn, replies, command...)
}

func request(command ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(command))
	for _, word := range command {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return text
}

// exchange sends a command and reads a simple string, an error or a bulk string.
func exchange(w io.Writer, replies *bufio.Reader, command ...string) (string, error) {
	if _, err := io.WriteString(w, request(command...)); err != nil {
		return "", err
	}
	line, err := replies.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		size, err := strconv.Atoi(rest)
		if err != nil || size < 0 {
			return "", fmt.Errorf("unexpected reply %q", line)
		}
		bulk := make([]byte, size)
		_, err = io.ReadFull(replies, bulk)
		return string(bulk), err
	default:
		return "", fmt.Errorf("unexpected reply %q", line)
	}
}

// awaitRefusal returns once nobody accepts connections at addr.
func awaitRefusal(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: time.Second}
	return await(ctx, nil, func(ctx context.Context) error {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errors.New("it still accepts connections")
	})
}

// await asks again and again until ask returns nil. It gives up when ended is closed or ctx ends.
func await(ctx context.Context, ended <-chan struct{}, ask func(ctx context.Context) error) error {
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("not in time: %w", err)
		case <-pause.C:
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// commands are the user's own, run by a shell, with placeholders for the node.
type commands struct {
	stop, start string
	timeout     time.Duration // for each run
}

var (
	placeholder = regexp.MustCompile(`\{(node|host|port|addr)\}`)
	harmless    = regexp.MustCompile(`^[A-Za-z0-9._:/%+@\[\]-]*$`) // in a shell, without quotes
)

// check refuses what could stop another node than it should.
func (c commands) check(o *own) error {
	if (c.stop == "") != (c.start == "") {
		return exitf(exitUsage, "--stop-cmd and --start-cmd belong together: what the drill stops it must be able to start")
	}
	for flag, text := range map[string]string{"--stop-cmd": c.stop, "--start-cmd": c.start} {
		if text == "" {
			continue
		}
		if !placeholder.MatchString(text) {
			return exitf(exitUsage, "%s would do the same for every node: say which with {node} (its number in the list, from 1), "+
				"{host}, {port} or {addr} (host:port, or the path of a socket)", flag)
		}
		for i := range o.count() {
			host, port := o.place(i)
			if host+port == "" && (strings.Contains(text, "{host}") || strings.Contains(text, "{port}")) {
				return exitf(exitUsage, "%s: node %d has a socket, no {host} and no {port}; use {node} or {addr}", flag, i+1)
			}
			if !harmless.MatchString(o.addr(i)) {
				return exitf(exitUsage, "%s: the address of node %d holds a character that means something to a shell", flag, i+1)
			}
		}
	}
	return nil
}

// fill puts the node into the command.
func (c commands) fill(text string, o *own, i int) string {
	host, port := o.place(i)
	return strings.NewReplacer("{node}", strconv.Itoa(i+1), "{host}", host, "{port}", port, "{addr}", o.addr(i)).Replace(text)
}

// run runs a command for one node. Its output is shown if it fails, but never a password of a URL. A command that has
// begun outlives an interrupted drill: half of it may still stop the node, after the drill has started it again.
func (c commands) run(ctx context.Context, flag, text string, o *own, i int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", c.fill(text, o, i))

	// A file, not a pipe: a server that the command leaves behind may keep it open for as long as it lives.
	out, err := os.CreateTemp("", "redlock-drill")
	if err != nil {
		return err
	}
	defer func() {
		_ = out.Close()
		_ = os.Remove(out.Name())
	}()
	cmd.Stdout, cmd.Stderr = out, out
	ownGroup(cmd) // Ctrl-C is for the drill, which then starts what it has stopped
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("not done after %v", c.timeout)
	}
	said := strings.Join(strings.FieldsFunc(o.redact(tail(out)), func(r rune) bool { return r == '\n' || r == '\r' }), " | ")
	if said == "" {
		said = "it said nothing"
	}
	return fmt.Errorf("%s for node %d: %w: %s", flag, i+1, err, said)
}

// tail is the end of what a command said.
func tail(f *os.File) string {
	const most = 2000
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	text := make([]byte, min(size, most))
	n, _ := f.ReadAt(text, max(0, size-most))
	return strings.TrimSpace(strings.ToValidUTF8(string(text[:n]), "?"))
}

// redact takes the passwords of the nodes out of a text.
func (o *own) redact(text string) string {
	for i := range o.urls {
		if u, err := url.Parse(o.urls[i]); err == nil && u.User != nil { // as it stands in the URL, percent-encoded
			if _, coded, has := strings.Cut(u.User.String(), ":"); has && coded != "" {
				text = strings.ReplaceAll(text, coded, "***")
			}
		}
		if p := o.options(i).Password; p != "" {
			text = strings.ReplaceAll(text, p, "***")
		}
	}
	return text
}

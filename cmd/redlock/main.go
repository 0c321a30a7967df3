// Command redlock runs a command under a quorum lock over independent Redis nodes, and shows in a drill what the lock
// does while nodes go away.
//
//	main    what each exit code means
//	root    the commands; version
//	nodes   where the list of nodes comes from; no passwords in arguments
//	run     flags of run, waiting for the lock, what is said at the end
//	super   the supervisor: signals, deadline, and the end of the whole process group
//	child   one started command (child_unix, child_other); its environment, its exit status
//	term    who has the terminal (term_unix, term_other)
//	drill   the drill: flags; tour: the one without a name; play: named ones; report: files to write
//	scenarios  what is done (scenarios_loss, scenarios_net, paused: a holder that stands still)
//	stage   what a scenario plays on; cast: its clients
//	fleet   its nodes: embedded, or the user's; commands: how those are stopped and started
//	teller  what is printed, and which promises were kept; timeline
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// Exit codes of run beside the command's own. They keep clear of what commands commonly use: 1 and 2, sysexits (64 to
// 78), xargs and timeout (123, 124), signals (128 and above), systemd (200 and above). 125 to 127 mean what they mean
// for env, nohup and timeout.
const (
	exitOK         = 0
	exitFailed     = 1   // drill: a promise was not kept
	exitUndone     = 2   // drill: it could not be carried out
	exitHeld       = 117 // not acquired: another holds it
	exitNoQuorum   = 118 // not acquired: too few nodes answered to know
	exitLost       = 119 // the lock was lost, or the command was ended before it could be
	exitUsage      = 125 // a mistake in the arguments or the configuration; nothing was run
	exitCannotExec = 126 // the command was found and cannot be executed
	exitNotFound   = 127 // the command was not found
	exitSignal     = 128 // and the signal's number
)

// exitError ends the program with a code. An empty text was said already, or needs no saying.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func exitf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

func main() {
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	say := newSpeaker(stderr)
	root := newRoot(stdout, say)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	exit := &exitError{exitUsage, err.Error()}
	errors.As(err, &exit)
	if exit.text != "" {
		say.f("%s", exit.text)
	}
	return exit.code
}

// speaker writes whole lines to stderr, for people.
type speaker struct {
	mu sync.Mutex // so that lines of two goroutines do not mix
	w  io.Writer
}

func newSpeaker(w io.Writer) *speaker { return &speaker{w: w} }

// f writes one line with "redlock: " in front, once: the library's errors bring it along.
func (s *speaker) f(format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "redlock: ")
	s.mu.Lock()
	defer s.mu.Unlock()
	// Whether anybody can read it changes nothing.
	_, _ = fmt.Fprintf(s.w, "redlock: %s\n", text)
}

// reasonText is an error of the library as part of a sentence of ours.
func reasonText(err error) string {
	return strings.TrimPrefix(err.Error(), "redlock: ")
}

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// command is what run starts under the lock.
type command struct {
	path string
	args []string // with the name in front
	env  []string
}

// find looks the command up, before anything is locked.
func find(args []string) (command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return command{}, cannotStart(args[0], err)
	}
	return command{path: path, args: args}, nil
}

// cannotStart says it with the codes that a shell uses.
func cannotStart(name string, err error) error {
	var wrapped *exec.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitf(exitNotFound, "%s: command not found", name)
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return exitf(exitCannotExec, "%s: cannot execute: %v", name, err)
}

// What the command is told about its lock.
const (
	envKeys     = "REDLOCK_KEYS"     // the keys, sorted, one a line
	envToken    = "REDLOCK_TOKEN"    // what the nodes store for this acquisition
	envFence    = "REDLOCK_FENCE"    // a number that rises with every ownership, for the store that is written to
	envDeadline = "REDLOCK_DEADLINE" // when the lock ends unless it is renewed, as of the start
)

// environment is the command's: ours, without the nodes' URLs, which may hold passwords, and with its lock.
func environment(ours []string, lock *redlock.Lock) []string {
	set := map[string]string{
		envKeys:     strings.Join(lock.Resources(), "\n"),
		envToken:    lock.Token(),
		envFence:    strconv.FormatUint(lock.Fence(), 10),
		envDeadline: lock.ValidUntil().UTC().Format(time.RFC3339Nano),
	}
	var env []string
	for _, entry := range ours {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := set[name]; !replaced && name != envNodes {
			env = append(env, entry)
		}
	}
	for _, name := range []string{envKeys, envToken, envFence, envDeadline} {
		env = append(env, name+"="+set[name])
	}
	return env
}

// status is how a command ended.
type status struct {
	code   int // its exit code, if signal is 0
	signal syscall.Signal
}

// exit is the code that tells of it, as a shell would.
func (s status) exit() int {
	if s.signal != 0 {
		return exitSignal + int(s.signal)
	}
	return s.code
}

// childEvent is what happened to the command.
type childEvent struct {
	exited  bool // or else stopped
	status  status
	stopped syscall.Signal
}

// stdio is handed on as it is: redlock reads none of the command's input and touches none of its output.
func stdio() []*os.File { return []*os.File{os.Stdin, os.Stdout, os.Stderr} }

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal. A process group that reads from it without being its foreground group is
// stopped, so the command's group becomes that for as long as it runs. A nil terminal is none.
type terminal struct {
	tty   *os.File
	own   int // redlock's process group
	stdin bool
}

// openTerminal returns nil if there is none.
func openTerminal() *terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{tty: tty, own: unix.Getpgrp(), stdin: isTerminal(os.Stdin)}
}

// isTerminal says whether f is the controlling terminal of this process.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// begin hands the terminal to a command that has just been started, if its input is the terminal.
func (t *terminal) begin(ch *child) {
	if t == nil {
		return
	}
	// From now on redlock may be in the background, and must still be able to take the terminal back and to write to
	// it. Not earlier: the command would inherit it.
	signal.Ignore(unix.SIGTTOU)
	if t.stdin && t.give(ch) {
		// It may have read too early, and been stopped.
		_ = ch.proceed()
	}
}

// give makes the command's group the foreground group, if ours is; it reports whether the command's group is it now.
func (t *terminal) give(ch *child) bool {
	return t != nil && t.pass(t.own, ch.pid)
}

// takeBack undoes give.
func (t *terminal) takeBack(ch *child) {
	if t != nil {
		t.pass(ch.pid, t.own)
	}
}

// pass makes one group the foreground group if another is; it reports whether the one is it now. Any third group has
// got it from somebody else.
func (t *terminal) pass(from, to int) bool {
	fd := int(t.tty.Fd())
	now, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	switch {
	case err != nil:
		return false
	case now == from:
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, to) == nil
	}
	return now == to
}

// stopped says what to do about a stop of the command, so that its shell sees what it would see without redlock.
func (t *terminal) stopped(ch *child, by os.Signal) (suspend, proceed bool) {
	switch by {
	case unix.SIGTTIN, unix.SIGTTOU: // wants the terminal
		if t.give(ch) {
			return false, true
		}
		return t.hasShell(), false
	case unix.SIGTSTP: // Ctrl-Z
		return t.hasShell(), !t.hasShell()
	}
	return false, false // SIGSTOP: somebody's wish
}

// hasShell says whether there is a shell that could continue redlock after a stop: one leads the session, and started
// us as a job.
func (t *terminal) hasShell() bool {
	sid, err := unix.Getsid(0)
	return t != nil && err == nil && sid != t.own
}

// suspend stops redlock's whole job, for its shell to see, and returns when the shell has continued it.
func (t *terminal) suspend(ch *child) {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	t.takeBack(ch)
	_ = unix.Kill(0, unix.SIGSTOP)
	// Another thread may take the signal, and this one run on for a moment. The command must not.
	<-continued
}

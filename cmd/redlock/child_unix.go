//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// child is a started command, the leader of a process group of its own.
type child struct {
	pid    int             // also the group's
	events chan childEvent // the last one says that the command has exited
}

// start starts the command.
func start(c command) (*child, error) {
	ch := &child{events: make(chan childEvent, 16)}
	started := make(chan error)
	go ch.keep(c, started)
	if err := <-started; err != nil {
		return nil, cannotStart(c.args[0], err)
	}
	return ch, nil
}

// keep starts the command and reports what happens to it. It ends when the command has exited.
func (ch *child) keep(c command, started chan<- error) {
	// The kernel kills the command when the thread that started it dies, not only when the process does: so this
	// goroutine keeps the thread for itself, and both end only after the command.
	runtime.LockOSThread()
	adoptOrphans()
	p, err := os.StartProcess(c.path, c.args, &os.ProcAttr{Env: c.env, Files: stdio(), Sys: guardedGroup()})
	if err != nil {
		started <- err
		return
	}
	ch.pid = p.Pid
	_ = p.Release() // waited for below, which os.Process cannot do for a stop
	started <- nil
	for {
		// Any child, for orphans of the command become ours.
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR) || pid != ch.pid && err == nil:
		case err != nil: // nothing to wait for: somebody else has, and the status is gone
			ch.events <- childEvent{exited: true, status: status{code: exitFailed}}
			return
		case ws.Stopped():
			ch.events <- childEvent{stopped: ws.StopSignal()}
		case ws.Signaled():
			ch.events <- childEvent{exited: true, status: status{signal: ws.Signal()}}
			return
		case ws.Exited():
			ch.events <- childEvent{exited: true, status: status{code: ws.ExitStatus()}}
			return
		}
	}
}

// signal sends a signal to the whole group. A group that is gone already is no error.
func (ch *child) signal(s os.Signal) error {
	if err := unix.Kill(-ch.pid, s.(unix.Signal)); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func (ch *child) terminate() error { return ch.signal(unix.SIGTERM) }
func (ch *child) kill() error      { return ch.signal(unix.SIGKILL) }
func (ch *child) proceed() error   { return ch.signal(unix.SIGCONT) }

// gone says whether the whole group has ended. Only for after the command itself has. While a process of the group is
// left, its number cannot become another group's.
func (ch *child) gone() bool {
	for {
		pid, err := unix.Wait4(-ch.pid, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Is(unix.Kill(-ch.pid, 0), unix.ESRCH)
}

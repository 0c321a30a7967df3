//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownGroup keeps the terminal's signals from a command, and ends all of it when its ctx does.
func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return unix.Kill(-c.Process.Pid, unix.SIGKILL) }
	c.WaitDelay = time.Second
}

// pauses says that this system can stop a process and let it go on.
const pauses = true

// pause returns when the whole process stands still: a moment passes between the signal and that.
func pause(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	for {
		var ws unix.WaitStatus
		switch _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case err == nil && ws.Stopped():
			return nil
		case err == nil && (ws.Exited() || ws.Signaled()):
			return errors.New("it has ended")
		}
	}
}

func resume(pid int) error { return unix.Kill(pid, unix.SIGCONT) }

// watched keeps the terminal's signals from a process of the drill's own, which dies with the drill where the system can
// do that.
func watched(c *exec.Cmd) { c.SysProcAttr = guardedGroup() }

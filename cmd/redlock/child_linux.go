package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// guardedGroup makes the command a process group, and has the kernel kill the command (not its children) when redlock
// itself is killed: nobody would watch the deadline any more.
func guardedGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes children of the command ours when their parents die, so that they can be waited for. Otherwise a
// dead one looks alive for as long as nobody collects it, in a container whose first process never does, for ever.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

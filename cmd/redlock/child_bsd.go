//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "syscall"

// guardedGroup makes the command a process group. When redlock itself is killed, nothing here ends the command.
func guardedGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// adoptOrphans leaves them to the system's first process.
func adoptOrphans() {}

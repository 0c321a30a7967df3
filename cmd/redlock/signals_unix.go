//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// enders end the wait for the lock and are forwarded to a running command.
var enders = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// others are forwarded too, but end no wait. SIGTSTP: a stop of redlock alone would leave the command unguarded.
var others = []os.Signal{unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT}

// brokenPipe would end redlock when nobody reads its messages any more.
const brokenPipe = unix.SIGPIPE

func isContinue(s os.Signal) bool { return s == unix.SIGCONT }

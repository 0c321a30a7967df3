//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"os"
	"syscall"
)

var (
	enders = []os.Signal{os.Interrupt, syscall.SIGTERM}
	others []os.Signal
)

const brokenPipe = syscall.SIGPIPE

func isContinue(os.Signal) bool { return false }

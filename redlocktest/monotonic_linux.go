package redlocktest

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1 // CLOCK_MONOTONIC of <linux/time.h>

// machineTime reads the clock that all processes of a machine share, since its
// boot. It goes on while a process is frozen and nobody can set it. Go's own
// monotonic reading is the same clock, but counted from each process's start.
func machineTime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}

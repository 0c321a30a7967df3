package redlock

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of <linux/time.h>: monotonic, and runs on while the machine is suspended

// bootIsSet says whether somebody may set the clock that counts suspension.
const bootIsSet = false

// newBootClock returns a clock that counts from now and includes time spent suspended.
func newBootClock() func() time.Duration {
	start := readBootTime()
	return func() time.Duration { return readBootTime() - start }
}

// readBootTime never fails on Linux 2.6.39 or newer; where it is forbidden it returns 0, which leaves the monotonic
// clock to decide.
func readBootTime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}

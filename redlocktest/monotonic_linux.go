package redlocktest

import (
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of <linux/time.h>

// machineTime reads the clock that all processes of a machine share, since its
// boot. It goes on while a process is frozen and while the machine is suspended,
// as the servers' clocks and the locks' deadlines do, and nobody can set it. Go's
// own monotonic reading stands still in a suspend.
func machineTime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(ts.Nano())
}

package redlock

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME of <linux/time.h>: monotonic, and runs on while the machine is suspended

// bootIsSet says whether somebody may set the clock that counts suspension.
const bootIsSet = false

// newBootClock returns a clock that counts from now and includes time spent suspended.
func newBootClock() func() time.Duration {
	epoch := time.Now()
	c := &bootClock{boot: readBootTime, others: func() (mono, wall time.Duration) {
		t := time.Now()
		return t.Sub(epoch), t.Round(0).Sub(epoch.Round(0))
	}}
	start := c.read()
	return func() time.Duration { return c.read() - start }
}

// bootClock is CLOCK_BOOTTIME without its price: the system call was a fifth of a busy client's time, while Go reads the
// two other clocks without one. On waking the kernel adds what it slept to the wall clock and to CLOCK_BOOTTIME in one
// step, and it slews the wall clock and the monotonic one alike; so while wall - monotonic is what it was, nothing was
// slept, and boot - monotonic is what it was too. After a step of the wall clock, by whatever cause, the clock itself is
// read. Unseen stays one case: a wall clock that is set back by what was slept, to 50 us, before anybody looks.
// (__timekeeping_inject_sleeptime and timekeeping_adjust in Linux, kernel/time/timekeeping.c.)
type bootClock struct {
	others func() (mono, wall time.Duration) // set by newBootClock, then read-only, like the next one
	boot   func() time.Duration              // CLOCK_BOOTTIME itself
	known  atomic.Pointer[moment]
}

// moment is one moment by all three clocks.
type moment struct {
	mono, wall, boot time.Duration
}

// bootTolerance is what readings of clocks, one right after the other, may differ by without a step: far more than they
// take, far less than a suspend or any drift's floor.
const bootTolerance = 50 * time.Microsecond

func (c *bootClock) read() time.Duration {
	mono, wall := c.others()
	if k := c.known.Load(); k != nil && k.explains(mono, wall) {
		return k.boot + mono - k.mono
	}
	// What the clock says is kept where nothing came between this reading and those of the others: otherwise the next
	// caller reads it too.
	k := &moment{mono: mono, wall: wall, boot: c.boot()}
	if mono, wall = c.others(); mono-k.mono <= bootTolerance && k.explains(mono, wall) {
		c.known.Store(k)
	}
	return k.boot
}

// explains says whether the wall clock went on with the monotonic one since then.
func (k *moment) explains(mono, wall time.Duration) bool {
	return abs((wall-k.wall)-(mono-k.mono)) <= bootTolerance
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

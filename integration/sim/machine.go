package sim

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock/internal/seam"
)

// machine is what a client's process runs on: it has clocks, and can stand still.
type machine struct {
	w      *world
	epoch  time.Time
	ahead  atomic.Int64 // what its clocks have run on while it was suspended
	missed atomic.Int64 // less what they did not run while it was paused, plus what the pool has found out of that
	frozen gate         // the process stands still

	mu        sync.Mutex    // guards the fields below
	disturbed time.Duration // when it last went on after it stood still
	paused    time.Duration // when its clocks last went on after they stood still
}

func newMachine(w *world) *machine { return &machine{w: w, disturbed: -time.Hour, paused: -time.Hour} }

// clocks are the machine's clocks for a pool that is made now.
func (m *machine) clocks() seam.Clocks {
	m.epoch = time.Now()
	return seam.Clocks{Boot: m.boot, Missed: &m.missed}
}

// boot reads the clock, and then stands still if the process is frozen: between the reading and its use is the worst
// place. It cannot do so where its caller holds a mutex, for in a bubble who waits for a mutex keeps time from going on.
func (m *machine) boot() time.Duration {
	d := time.Since(m.epoch) + time.Duration(m.ahead.Load())
	if m.standing() > 0 && mayStand() {
		m.thaw()
	}
	return d
}

// The functions that read the clock without holding a mutex.
var standing = []string{"redlock.(*node).pace", "redlock.(*watchdog).jumped", "redlock.(*quorum).renew", "redlock.(*quorum).topUp"}

func mayStand() bool {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		for _, s := range standing {
			if strings.HasSuffix(f.Function, s) {
				return true
			}
		}
		if !more {
			return false
		}
	}
}

// standing is how long the process will stand still.
func (m *machine) standing() time.Duration { return m.frozen.left() }

// thaw waits until the process runs.
func (m *machine) thaw() { m.frozen.pass(always) }

// wake ends a freeze before its time.
func (m *machine) wake() {
	if m.standing() > 0 {
		m.frozen.open()
		m.note(0, false)
	}
}

// freeze stops the process for d: it reads and writes nothing, and its goroutines stop at their next step.
func (m *machine) freeze(d time.Duration) {
	m.frozen.shut(d)
	m.note(d, false)
}

// suspend lets d go by in which nothing ran but the one clock.
func (m *machine) suspend(d time.Duration) {
	m.ahead.Add(int64(d))
	m.note(0, false)
}

// pause freezes the machine for d, and its clocks with it.
func (m *machine) pause(d time.Duration) {
	m.freeze(d)
	m.missed.Add(-int64(d)) // at once, for nothing reads them meanwhile
	m.note(d, true)
}

func (m *machine) note(d time.Duration, paused bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disturbed = m.w.now() + max(d, m.standing())
	if paused {
		m.paused = m.w.now() + d
	}
}

// since says when the machine last went on, after standing still and after a pause of its clocks.
func (m *machine) since() (disturbed, paused time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disturbed, m.paused
}

//go:build !linux

package redlock

import "time"

// bootIsSet says whether somebody may set the clock that counts suspension.
const bootIsSet = true

// newBootClock returns the wall clock, counted from now: it goes on while the machine is suspended, and where it is
// stepped it can only shorten a lock, for elapsed takes the larger of two clocks.
func newBootClock() func() time.Duration {
	start := time.Now().Round(0)
	return func() time.Duration { return time.Now().Round(0).Sub(start) }
}

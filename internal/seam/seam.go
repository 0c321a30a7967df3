// Package seam is where a simulation takes the place of a machine's clocks. Nothing else uses it.
package seam

import (
	"sync/atomic"
	"time"
)

// Clock, where it is not nil, gives the next pool that is made its clocks; set it right before, in one goroutine. Nil
// outside of simulations.
var Clock func() Clocks

// Clocks are the clocks of one simulated machine, as a pool reads them.
type Clocks struct {
	// Boot is the clock that runs on while the machine is suspended: the time since the pool was made. It may block, as a
	// process does that is frozen, where its caller holds no mutex.
	Boot func() time.Duration
	// Missed is added to both clocks; the pool adds to it what it learns that they have missed. A machine that is paused
	// for d, so that all of its clocks stand still, subtracts d.
	Missed *atomic.Int64
}

package sim

import (
	"sync"
	"time"
)

// Stats are the figures of some schedules.
type Stats struct {
	mu        sync.Mutex
	Schedules int
	Acquired  int
	Failed    int
	Lost      int
	Loose     int // schedules in which only clocks kept fences in order from some moment on
	Simulated time.Duration
	Faults    map[string]int
	Classes   map[class]int
}

// NewStats has counted nothing yet.
func NewStats() *Stats { return &Stats{Faults: map[string]int{}, Classes: map[class]int{}} }

func (s *Stats) fault(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Faults[name]++
}

func (s *Stats) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Failed++
}

// Add takes in others.
func (s *Stats) Add(o *Stats) {
	s.Schedules += o.Schedules
	s.Acquired += o.Acquired
	s.Failed += o.Failed
	s.Lost += o.Lost
	s.Loose += o.Loose
	s.Simulated += o.Simulated
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
	for k, n := range o.Classes {
		s.Classes[k] += n
	}
}

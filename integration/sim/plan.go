package sim

import (
	"math/rand/v2"
	"time"
)

// plan is what a seed decides before a schedule begins.
type plan struct {
	Seed        uint64
	Class       class
	Nodes, Need int
	Clients     int
	Workers     int // of each client
	TTL         time.Duration
	NodeTimeout time.Duration
	Retry       time.Duration
	Time        time.Duration // virtual
	Delay       time.Duration // one way, on average
	Calm        time.Duration // between faults, on average
	Ahead       bool          // the counters are ahead of the nodes' clocks, which were wrong once
	Rate        float64       // how much faster than the clients' the nodes' clocks run: less than the drift factor
}

// class is a kind of schedule: what goes wrong in it, and what must hold beside the promises that always hold.
type class string

const (
	calm      class = "calm"      // nothing but jitter: no lock is lost, no lonely call fails
	minority  class = "minority"  // as many nodes as may be away suffer everything: the same
	storm     class = "storm"     // everything, everywhere
	isolation class = "isolation" // machines freeze, sleep and are cut off; nodes are well
	clocks    class = "clocks"    // nodes' clocks step and run at wrong rates
	amnesia   class = "amnesia"   // many nodes forget, at once or one after the other
)

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, actorPlan<<32))
	p := plan{Seed: seed}
	p.Class = pick(r, []class{calm, minority, minority, storm, storm, storm, storm, isolation, isolation, isolation, clocks, amnesia, amnesia, amnesia})
	p.Nodes = pick(r, []int{3, 4, 5, 5, 5, 5})
	p.Need = p.Nodes/2 + 1
	if p.Nodes == 5 && r.IntN(4) == 0 {
		p.Need = 4
	}
	p.TTL = pick(r, []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second, 4 * time.Second, 10 * time.Second})
	p.NodeTimeout = min(250*time.Millisecond, p.TTL/4)
	p.Clients = 2 + r.IntN(3)
	p.Workers = 1 + r.IntN(3)
	p.Retry = max(time.Millisecond, p.TTL/200)
	p.Time = min(40*time.Second, 40*p.TTL)
	p.Delay = min(p.NodeTimeout/20, time.Duration(100+r.IntN(2000))*time.Microsecond)
	p.Calm = p.TTL / time.Duration(pick(r, []int{2, 4, 8, 16}))
	p.Rate = pick(r, []float64{0, -0.008, 0.008})
	p.Ahead = r.IntN(4) == 0
	return p
}

// gentle says whether everything that happens must go unnoticed by those who hold locks.
func (p plan) gentle() bool { return p.Class == calm || p.Class == minority || p.Class == clocks }

// spare is how many nodes may be away without anybody noticing.
func (p plan) spare() int { return p.Nodes - p.Need }

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// between is a duration from low on and below high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(max(1, high-low))))
}

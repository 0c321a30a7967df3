package nemesis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Config says what a plan may use.
type Config struct {
	Seed     uint64
	Duration time.Duration // everything is mended by then, as far as the plan goes
	Pace     time.Duration // between two faults on average; they come slower where the promise asks for it
	// Recovery is how long a node may be without a vote after it was mended: a guard, and until that is noticed.
	Recovery time.Duration
	Only     []string // the kinds of faults to use; nil: all that the world has
}

// Step is one fault of a plan.
type Step struct {
	ID      int
	At      time.Duration // since the plan began
	For     time.Duration // how long it lasts
	Kind    string
	Costly  bool   // it may cost availability
	Nodes   []int  // the servers that it is done to
	Pairs   []Pair // or the links
	Clients []int  // or the client processes
	Chance  uint64 // seeds what the fault itself chooses

	Repeated int64         // once it is done: how many requests were sent again
	repeated *atomic.Int64 // counts them
}

// Pair is a client and a node.
type Pair struct{ Client, Node int }

// Takes says whether node is away, or without a vote, for client because of this step.
func (s Step) Takes(client, node int) bool {
	return find(s.Kind).takes && (slices.Contains(s.Nodes, node) || slices.Contains(s.Pairs, Pair{client, node}))
}

// String says what is done to whom.
func (s Step) String() string {
	return fmt.Sprintf("%v %s nodes %v links %v clients %v for %v", s.At.Round(time.Millisecond), s.Kind, s.Nodes, s.Pairs, s.Clients,
		s.For.Round(time.Millisecond))
}

// Plan is what a nemesis is going to do.
type Plan struct {
	Config
	Steps []Step // in order
}

// planner keeps what it has planned so far.
type planner struct {
	promise
	cfg  Config
	rng  *rand.Rand
	plan []Step
	bag  []string
}

// NewPlan makes the plan that a seed stands for: the same seed, world and configuration give the same plan. A kind in
// Only that is not known, or that the world has not what it takes for, is an error.
func NewPlan(w World, cfg Config) (Plan, error) {
	p := &planner{cfg: cfg, promise: promise{world: w, recovery: cfg.Recovery}, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}
	for _, name := range cfg.Only {
		k := find(name)
		if k == nil {
			return Plan{}, fmt.Errorf("nemesis: there is no fault %q", name)
		}
		if !p.has(*k) {
			return Plan{}, fmt.Errorf("nemesis: the fault %q cannot be had here: the servers or clients lack what it takes", name)
		}
	}
	for now := time.Duration(0); ; now += p.between(cfg.Pace/2, cfg.Pace*3/2) {
		s, ok := p.next(now)
		if !ok {
			return Plan{cfg, p.plan}, nil
		}
		s.ID = len(p.plan) + 1
		p.plan = append(p.plan, s)
		p.add(s)
		now = s.At
	}
}

// next plans the next fault for the first moment, not before now, at which the promise allows it.
func (p *planner) next(now time.Duration) (Step, bool) {
	for tries := 0; ; tries++ {
		if now+time.Second > p.cfg.Duration {
			return Step{}, false
		}
		p.forget(now)
		if len(p.bag) == 0 {
			p.fill()
			if len(p.bag) == 0 {
				return Step{}, false
			}
		}
		// Any of the bag will do: a fault that has to wait must not keep the others waiting.
		for i, name := range p.bag {
			s := p.draw(find(name), now)
			if s.At+s.For < p.cfg.Duration && p.allowed(s) {
				p.bag = slices.Delete(p.bag, i, i+1)
				return s, true
			}
			// What needs all nodes well would wait for ever behind faults that need but one: the others wait for the
			// first in the bag once it has waited for long.
			if i == 0 && tries > 20 {
				break
			}
		}
		now += 50 * time.Millisecond
	}
}

// fill puts every kind that the world has into the bag, so that none is forgotten.
func (p *planner) fill() {
	p.bag = Possible(p.world, p.cfg.Only)
	p.rng.Shuffle(len(p.bag), func(i, j int) { p.bag[i], p.bag[j] = p.bag[j], p.bag[i] })
}

// Possible are the names of the kinds of faults that a plan for this world takes; only is as in [Config].
func Possible(w World, only []string) (names []string) {
	p := promise{world: w}
	for _, k := range Kinds {
		if (only == nil || slices.Contains(only, k.Name)) && p.has(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

// draw chooses whom a fault is done to, and for how long.
func (p *planner) draw(k *Kind, now time.Duration) Step {
	s := Step{At: now, For: p.between(k.min, k.max), Kind: k.Name, Costly: k.Costly, Chance: p.rng.Uint64()}
	n := len(p.world.Keeps)
	few := 1
	if !k.alone && p.rng.IntN(3) == 0 {
		few = (n - 1) / 2
	}
	many := n/2 + 1 + p.rng.IntN(n-n/2)
	if k.Name == "flush-majority" {
		many = n/2 + 1 // FLUSHALL on all, and SCRIPT FLUSH, is outside of the promise
	}
	switch k.scope {
	case onNode:
		s.Nodes = p.some(few, n, func(i int) bool {
			return (k.needs != needAOF || p.world.Keeps[i] == AOF) && (k.needs != needSnapshot || p.world.Keeps[i] == Snapshot)
		})
	case onNodes:
		s.Nodes = p.some(many, n, nil)
	case onLinks, onClientCut:
		if k.scope == onClientCut {
			few = many
		}
		c := p.rng.IntN(len(p.world.Links))
		for _, i := range p.some(few, n, nil) {
			s.Pairs = append(s.Pairs, Pair{c, i})
		}
	case onAllLinks:
		first := p.rng.IntN(n)
		for c := range p.world.Links {
			for i := range (n - 1) / 2 {
				s.Pairs = append(s.Pairs, Pair{c, (first + c + i) % n})
			}
		}
	case onClient:
		s.Clients = []int{p.rng.IntN(len(p.world.Clients))}
	}
	return s
}

// some chooses k of the numbers below n that will do, fewer if there are fewer.
func (p *planner) some(k, n int, will func(int) bool) []int {
	var all []int
	for i := range n {
		if will == nil || will(i) {
			all = append(all, i)
		}
	}
	p.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	chosen := all[:min(k, len(all))]
	slices.Sort(chosen)
	return chosen
}

func (p *planner) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(p.rng.Int64N(int64(high-low)))
}

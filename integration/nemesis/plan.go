package nemesis

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// promise is what has to be looked at to keep within the promise.
type promise struct {
	world    World
	recovery time.Duration
	live     []Step // those that may still matter
}

// planner keeps what it has planned so far.
type planner struct {
	promise
	cfg  Config
	rng  *rand.Rand
	plan []Step
	bag  []string
}

// NewPlan makes the plan that a seed stands for: the same seed, world and configuration give the same plan.
func NewPlan(w World, cfg Config) (Plan, error) {
	p := &planner{cfg: cfg, promise: promise{world: w, recovery: cfg.Recovery}, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}
	for _, name := range cfg.Only {
		if find(name) == nil {
			return Plan{}, fmt.Errorf("nemesis: there is no fault %q", name)
		}
	}
	for now := time.Duration(0); ; now += p.between(cfg.Pace/2, cfg.Pace*3/2) {
		s, ok := p.next(now)
		if !ok {
			return Plan{cfg, p.plan}, nil
		}
		s.ID = len(p.plan) + 1
		p.plan = append(p.plan, s)
		p.live = append(p.live, s)
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
	for _, k := range Kinds {
		if p.cfg.Only != nil && !slices.Contains(p.cfg.Only, k.Name) || !p.has(k) {
			continue
		}
		p.bag = append(p.bag, k.Name)
	}
	p.rng.Shuffle(len(p.bag), func(i, j int) { p.bag[i], p.bag[j] = p.bag[j], p.bag[i] })
}

// has says whether the world has what a kind of fault needs.
func (p *promise) has(k Kind) bool {
	switch k.scope {
	case onLinks, onAllLinks, onClientCut:
		if p.world.Links == nil {
			return false
		}
	case onClient:
		if p.world.Clients == nil {
			return false
		}
	}
	switch k.needs {
	case needAOF:
		return slices.Contains(p.world.Keeps, AOF)
	case needSnapshot:
		return slices.Contains(p.world.Keeps, Snapshot)
	case needClock:
		return p.world.Clocks
	case needNetwork:
		return len(p.world.Servers) > 0 && p.world.Servers[0].CanDisconnect()
	}
	return true
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

// forget drops the steps of which nothing is left.
func (p *promise) forget(now time.Duration) {
	p.live = slices.DeleteFunc(p.live, func(s Step) bool { return s.At+s.For+p.recovery < now })
}

// allowed says whether a step may be done with all that is under way or not recovered from.
func (p *promise) allowed(s Step) bool {
	k := find(s.Kind)
	for _, o := range p.live {
		// 1. One fault at a time to each server, link and process.
		if s.At <= o.At+o.For && s.touches(o) {
			return false
		}
		// 2. A node that forgets unseen: all others are well.
		other := find(o.Kind)
		if (k.alone && other.takes || k.takes && other.alone) && !s.sameNode(o) {
			return false
		}
	}
	// 3. Nobody is without a majority, unless that is the point.
	return k.Costly || !k.takes || p.away(s) <= (len(p.world.Keeps)-1)/2
}

// away is how many nodes, at worst, some client would be without.
func (p *promise) away(s Step) int {
	worst := 0
	for c := range max(1, len(p.world.Links)) {
		n := 0
		for i := range p.world.Keeps {
			if s.Takes(c, i) || slices.ContainsFunc(p.live, func(o Step) bool { return !o.Costly && o.Takes(c, i) }) {
				n++
			}
		}
		worst = max(worst, n)
	}
	return worst
}

// touches says whether two steps have a server, a link or a process in common.
func (s Step) touches(o Step) bool {
	return overlap(s.Nodes, o.Nodes) || overlap(s.Pairs, o.Pairs) || overlap(s.Clients, o.Clients)
}

// sameNode says whether both are about one and the same node alone.
func (s Step) sameNode(o Step) bool {
	return len(s.Nodes) == 1 && len(o.Nodes) == 1 && s.Nodes[0] == o.Nodes[0]
}

func overlap[T comparable](a, b []T) bool {
	return slices.ContainsFunc(a, func(x T) bool { return slices.Contains(b, x) })
}

package nemesis

import (
	"slices"
	"time"
)

// promise is what has to be looked at to keep within the promise.
type promise struct {
	world    World
	recovery time.Duration
	live     []Step // those that may still matter
	wipes    []Step // those of FLUSHALL and of SCRIPT FLUSH that may, which is longer
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

// forget drops the steps of which nothing is left.
func (p *promise) forget(now time.Duration) {
	p.live = slices.DeleteFunc(p.live, func(s Step) bool { return s.At+s.For+p.recovery < now })
	p.wipes = slices.DeleteFunc(p.wipes, func(s Step) bool { return s.At+p.wipeWindow() < now })
}

// add notes a step that is about to be done.
func (p *promise) add(s Step) {
	p.live = append(p.live, s)
	if wipes(s.Kind) != "" {
		p.wipes = append(p.wipes, s)
	}
}

// wipes says what a kind of fault takes from a server that goes on running: "data", "scripts", or neither.
func wipes(kind string) string {
	switch kind {
	case "flushall", "flush-majority":
		return "data"
	case "script-flush":
		return "scripts"
	}
	return ""
}

// wipeWindow is how far apart wipes of different servers may be and still look like servers that were never used: ten
// seconds by docs/safety.md, a guard at least, and what a command may take.
func (p *promise) wipeWindow() time.Duration { return max(10*time.Second, p.recovery) + commandTimeout }

// unused says whether, with s, all servers would look as if they had never been used: their data and their scripts gone.
// Then nothing is left to tell a loss from a first use.
func (p *promise) unused(s Step) bool {
	gone := map[string]map[int]bool{"data": {}, "scripts": {}}
	for _, o := range append(p.wipes[:len(p.wipes):len(p.wipes)], s) {
		if what := wipes(o.Kind); what != "" {
			for _, n := range o.Nodes {
				gone[what][n] = true
			}
		}
	}
	all := len(p.world.Keeps)
	return wipes(s.Kind) != "" && all > 0 && len(gone["data"]) == all && len(gone["scripts"]) == all
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
	// 3. What looks like a first use: outside of the promise.
	if p.unused(s) {
		return false
	}
	// 4. Nobody is without a majority, unless that is the point.
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

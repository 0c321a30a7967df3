package redlocktest

import (
	"math/rand/v2"
	"time"
)

// What a network does to a connection, beside Freeze, Delay and Cut.

// direction is where bytes go.
type direction int

const (
	requests direction = iota
	replies
)

// Jitter adds a random time below max to the way of each reply, on top of
// [Proxy.Delay]; 0 ends it, also for replies on their way. Replies of one connection
// keep their order, as TCP keeps it; those of several do not. The same seed gives
// the same sequence of times, as long as replies come in the same order.
func (p *Proxy) Jitter(max time.Duration, seed uint64) {
	p.mu.Lock()
	p.random = nil
	if max > 0 {
		p.random = rand.New(rand.NewPCG(seed, 0))
	}
	p.mu.Unlock()
	p.change(func(g *gate) { g.jitter = max })
}

// luck is what the next reply takes of the longest jitter, from 0 to 1.
func (p *Proxy) luck() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random == nil {
		return 0
	}
	return p.random.Float64()
}

// Trickle lets only so many bytes a second through, in each direction of each
// connection, a few at a time; 0 ends it. A request is executed when its last byte
// has arrived.
func (p *Proxy) Trickle(bytesPerSecond int) {
	p.change(func(g *gate) { g.rate = max(bytesPerSecond, 0) })
}

// ration is how many of n bytes may pass at once, and how long to wait afterwards.
func (g gate) ration(n int) (bytes int, wait time.Duration) {
	if g.rate == 0 {
		return n, 0
	}
	const parts = 100 // of a second
	bytes = min(n, max(1, g.rate/parts))
	return bytes, time.Duration(bytes) * time.Second / time.Duration(g.rate)
}

// BlackHole makes the network eat everything: connections are accepted, bytes
// are read and thrown away, nothing is executed, nothing is answered. When it
// ends, connections that lost bytes are cut; idle ones go on.
func (p *Proxy) BlackHole(on bool) { p.hole(on, requests, replies) }

// BlackHoleRequests is [Proxy.BlackHole] one way: what clients send vanishes, what
// the server still answers arrives.
func (p *Proxy) BlackHoleRequests(on bool) { p.hole(on, requests) }

// BlackHoleReplies is [Proxy.BlackHole] the other way: requests are executed, and no
// reply arrives.
func (p *Proxy) BlackHoleReplies(on bool) { p.hole(on, replies) }

func (p *Proxy) hole(on bool, ways ...direction) {
	p.mu.Lock()
	var broken []*link
	for _, way := range ways {
		p.holes[way] = on
		for l := range p.links {
			if l.tainted[way] && !on && !l.orphan {
				broken = append(broken, l)
			}
		}
	}
	p.mu.Unlock()
	for _, l := range broken {
		l.cut()
	}
}

// swallows reports whether bytes of l vanish on that way. Once some did, all
// others must.
func (p *Proxy) swallows(l *link, way direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.tainted[way] = l.tainted[way] || p.holes[way]
	return l.tainted[way] || l.orphan
}

// HalfOpen makes the server side of all present connections die without a word,
// as when a machine loses power or a firewall forgets them: requests that wait
// are not executed, the clients' side stays open and is never answered. New
// connections work. Only the client's closing ends such a connection, or
// [Proxy.Cut].
func (p *Proxy) HalfOpen() {
	p.mu.Lock()
	for l := range p.links {
		l.orphan = true
	}
	p.mu.Unlock()
	for _, l := range p.current() {
		if p.orphaned(l) {
			_ = l.Close()
		}
	}
}

func (p *Proxy) orphaned(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.orphan
}

// RefuseNew makes new connections be refused and leaves the present ones alone;
// RefuseNew(false) listens again, as [Proxy.Refuse] does.
func (p *Proxy) RefuseNew(on bool) error {
	if !on {
		return p.Refuse(false)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	return nil
}

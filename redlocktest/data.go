package redlocktest

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

type miniDB = *miniredis.Miniredis

// What [Node.TTL] answers without a time, as PTTL does.
const (
	NoExpiry time.Duration = -1
	NoKey    time.Duration = -2
)

// Get returns the string at key, and whether there is one. Like all methods
// that look at the data it asks the node itself, whatever fault is on; a
// stopped node has no data.
func (n *Node) Get(key string) (value string, ok bool) {
	n.engine.Load().with(func(m miniDB) {
		v, err := m.Get(key)
		value, ok = v, err == nil
	})
	return value, ok
}

// HGet returns a field of the hash at key, and whether there is one.
func (n *Node) HGet(key, field string) (value string, ok bool) {
	n.engine.Load().with(func(m miniDB) {
		if fields, err := m.HKeys(key); err == nil {
			for _, f := range fields {
				ok = ok || f == field
			}
			if ok {
				value = m.HGet(key, field)
			}
		}
	})
	return value, ok
}

// Keys returns the names of all keys, sorted.
func (n *Node) Keys() []string {
	var keys []string
	n.engine.Load().with(func(m miniDB) { keys = m.Keys() })
	return keys
}

// TTL returns how long the key has to live, [NoExpiry] or [NoKey].
func (n *Node) TTL(key string) time.Duration {
	ttl := NoKey
	n.engine.Load().with(func(m miniDB) {
		if !m.Exists(key) {
			return
		}
		if ttl = m.TTL(key); ttl == 0 {
			ttl = NoExpiry
		}
	})
	return ttl
}

// Set stores a string at key, in place of whatever is there, for ttl, or
// without expiry if ttl is 0. On a stopped node it does nothing.
func (n *Node) Set(key, value string, ttl time.Duration) {
	n.engine.Load().with(func(m miniDB) {
		m.Del(key)
		if err := m.Set(key, value); err == nil && ttl > 0 {
			m.SetTTL(key, ttl)
		}
	})
}

// Del deletes the key and reports whether it was there.
func (n *Node) Del(key string) bool {
	var was bool
	n.engine.Load().with(func(m miniDB) { was = m.Del(key) })
	return was
}

// FlushAll deletes all keys. Loaded scripts stay, as on a real server.
func (n *Node) FlushAll() {
	n.engine.Load().with(func(m miniDB) { m.FlushAll() })
}

// Now returns the time by the node's clock.
func (n *Node) Now() time.Time { return n.clock.now() }

// StepClock moves the node's clock by d, as if somebody had set it. TIME
// follows at once. Keys expire at an instant, not after a while, so a step
// forward takes d off their lives, and a step back adds it. The uptime in INFO
// follows too, as on a real server.
func (n *Node) StepClock(d time.Duration) {
	stepped := n.engine.Load().with(func(m miniDB) {
		m.DB(0) // let keys age up to the old time
		n.clock.step(d)
		m.SetTime(n.clock.now())
		if d < 0 {
			m.FastForward(d) // the server only ages keys when its clock goes forward
		}
	})
	if !stepped {
		n.clock.step(d)
	}
}

// ClockRate makes the node's clock run faster than the real one by a share: 0.08 is
// 8 % fast, -0.5 half as fast, 0 right again. It keeps what it has gained or lost.
// A share of -1 or less is taken as -0.999: the clock never goes back by itself.
// Keys expire by it, and TIME and the uptime follow.
func (n *Node) ClockRate(share float64) { n.clock.run(max(share, -0.999)) }

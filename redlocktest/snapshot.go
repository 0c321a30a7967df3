package redlocktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Snapshot is a copy of a node's data, as an RDB file is one: keys with the
// instants at which they expire, without scripts.
type Snapshot struct {
	databases map[int][]savedKey
}

type savedKey struct {
	name    string
	expires time.Time // zero: never
	restore func(*miniredis.RedisDB) error
}

const databases = 16 // as many as a Redis has by default

// Snapshot copies the node's data: strings, hashes, lists, sets and sorted sets. A
// stopped node has none; a stream is an error.
func (n *Node) Snapshot() (*Snapshot, error) {
	s := &Snapshot{databases: map[int][]savedKey{}}
	var err error
	n.engine.Load().with(func(m miniDB) {
		now := n.clock.now()
		for i := range databases {
			db := m.DB(i)
			for _, name := range db.Keys() {
				key, e := save(db, name, now)
				if e != nil {
					err = errors.Join(err, e)
					continue
				}
				s.databases[i] = append(s.databases[i], key)
			}
		}
	})
	return s, err
}

func save(db *miniredis.RedisDB, name string, now time.Time) (savedKey, error) {
	key := savedKey{name: name}
	if ttl := db.TTL(name); ttl > 0 {
		key.expires = now.Add(ttl)
	}
	switch kind := db.Type(name); kind {
	case "string":
		value, err := db.Get(name)
		key.restore = func(db *miniredis.RedisDB) error { return db.Set(name, value) }
		return key, err
	case "hash":
		fields, err := db.HKeys(name)
		var all []string
		for _, f := range fields {
			all = append(all, f, db.HGet(name, f))
		}
		key.restore = func(db *miniredis.RedisDB) error { db.HSet(name, all...); return nil }
		return key, err
	case "list":
		all, err := db.List(name)
		key.restore = func(db *miniredis.RedisDB) error { _, err := db.Push(name, all...); return err }
		return key, err
	case "set":
		all, err := db.Members(name)
		key.restore = func(db *miniredis.RedisDB) error { _, err := db.SetAdd(name, all...); return err }
		return key, err
	case "zset":
		all, err := db.SortedSet(name)
		key.restore = func(db *miniredis.RedisDB) error {
			for member, score := range all {
				if _, err := db.ZAdd(name, score, member); err != nil {
					return err
				}
			}
			return nil
		}
		return key, err
	default:
		return key, fmt.Errorf("redlocktest: a snapshot cannot hold %q, a %s", name, kind)
	}
}

// load puts the snapshot's keys that have not expired by now into an empty server.
func (s *Snapshot) load(m miniDB, now time.Time) error {
	for i, keys := range s.databases {
		db := m.DB(i)
		for _, key := range keys {
			ttl := key.expires.Sub(now)
			if !key.expires.IsZero() && ttl <= 0 {
				continue
			}
			if err := key.restore(db); err != nil {
				return fmt.Errorf("redlocktest: restoring %q: %w", key.name, err)
			}
			if !key.expires.IsZero() {
				db.SetTTL(key.name, ttl)
			}
		}
	}
	return nil
}

// RestartWithData is [Node.Restart] of a server that lost nothing, as one with an
// append-only file that is written at each command: its keys are there again, but
// for those that expired meanwhile, with a new run id, an uptime of zero and no
// loaded scripts. A node that is stopped has nothing left to keep, which is an
// error and leaves it stopped: take a [Node.Snapshot] before Stop, and come back
// with [Node.RestartFrom].
func (n *Node) RestartWithData() error {
	n.life.Lock()
	defer n.life.Unlock()
	e := n.engine.Load()
	if e == nil {
		return fmt.Errorf("redlocktest: %s is stopped and its data is gone: take a Snapshot before Stop, and RestartFrom it", n.Addr())
	}
	e.pause(true) // what is executed after the copy would be lost
	defer e.pause(n.proxy.gate().frozen)
	s, err := n.Snapshot()
	if err != nil {
		return err
	}
	return n.startLocked(0, s)
}

// RestartFrom is [Node.Restart] with the data of an earlier [Node.Snapshot], also
// of another node's: as a server comes back that saved an RDB file some time
// before it died.
func (n *Node) RestartFrom(s *Snapshot) error {
	n.life.Lock()
	defer n.life.Unlock()
	return n.startLocked(0, s)
}

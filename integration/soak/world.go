package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

const (
	nodeCount = 5
	stateKey  = "redlock:node" // ends the name of the hash that stays on every server
)

// world is everything that a soak runs on.
type world struct {
	host    *host
	nodes   []*servers.Server
	store   *servers.Server // out of the nemesis' reach
	looks   []*redis.Client // to the nodes, with contexts that end calls
	nemesis nemesis.World
	members []*member
}

// build starts servers and puts a network between each client and each node. Three servers keep an append-only file, two
// their last snapshot.
func build(h *host, o options, history *redlocktest.History) (*world, error) {
	w := &world{host: h}
	err := attempt(func() { w.start(h, o) })
	if err != nil {
		return w, err
	}
	for i := range o.clients {
		a := assignment{
			Name: clientName(i), Lock: o.lock, Store: w.store.Addr(), Seed: o.seed + uint64(i), TTL: o.ttl, NodeTimeout: o.nodeTimeout,
			Workers: o.workers, Resources: o.resources, Calm: o.faults == "none",
		}
		if o.holds > 0 {
			a.Holds = (o.holds + int64(o.clients) - 1) / int64(o.clients)
		}
		var links []nemesis.Link
		for _, s := range w.nodes {
			p, err := redlocktest.NewProxy(s.Addr())
			if err != nil {
				return w, err
			}
			h.Cleanup(func() { _ = p.Close() })
			links = append(links, nemesis.Link{Proxy: p})
			a.Nodes = append(a.Nodes, "redis://"+p.Addr())
		}
		m := newMember(a, o.out, history)
		h.Cleanup(func() { _ = m.end() })
		w.members = append(w.members, m)
		w.nemesis.Links = append(w.nemesis.Links, links)
		w.nemesis.Clients = append(w.nemesis.Clients, m)
	}
	return w, nil
}

func (w *world) start(h *host, o options) {
	p := servers.Provider(o.provider)
	with := []servers.Option{servers.WithProvider(p)}
	w.nemesis.Clocks = p == servers.Processes && o.clocks
	if w.nemesis.Clocks {
		with = append(with, servers.WithClock())
	}
	aof := servers.Start(h, 3, append(with, servers.WithAOF())...)
	rdb := servers.Start(h, nodeCount-3, append(with, servers.WithRDB())...)
	for i := range aof.Len() {
		w.nodes = append(w.nodes, aof.Server(i))
		w.nemesis.Keeps = append(w.nemesis.Keeps, nemesis.AOF)
	}
	for i := range rdb.Len() {
		w.nodes = append(w.nodes, rdb.Server(i))
		w.nemesis.Keeps = append(w.nemesis.Keeps, nemesis.Snapshot)
	}
	w.nemesis.Servers = w.nodes
	for _, s := range w.nodes {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		h.Cleanup(func() { _ = c.Close() })
		w.looks = append(w.looks, c)
	}
	w.store = servers.Start(h, 1, servers.WithProvider(p)).Server(0)
}

// startMembers starts all client processes.
func (w *world) startMembers() error {
	for _, m := range w.members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) tally() (all tally) {
	for _, m := range w.members {
		all = all.plus(m.tally())
	}
	return all
}

// left lists the keys that are on the nodes beside the hash that stays.
func (w *world) left(history *redlocktest.History) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i, s := range w.nodes {
		keys, err := s.Client().Keys(ctx, "*").Result()
		if err != nil {
			return fmt.Errorf("looking at %s: %w", nodeName(i), err)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if strings.HasSuffix(k, stateKey) {
				continue
			}
			token, _ := s.Client().Get(ctx, k).Result()
			ttl, _ := s.Client().PTTL(ctx, k).Result()
			history.Add(redlocktest.Record{
				Kind: redlocktest.Left, Node: nodeName(i), Hold: token, Text: fmt.Sprintf("%s for another %v", k, ttl),
			})
		}
	}
	return nil
}

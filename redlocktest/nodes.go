package redlocktest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Nodes are independent nodes, as many as were asked for.
type Nodes struct {
	all []*Node // set by New, then read-only
}

// Start starts n nodes for a test and closes them when it ends.
func Start(t testing.TB, n int) *Nodes {
	t.Helper()
	nodes, err := New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Close(); err != nil {
			t.Error(err)
		}
	})
	return nodes
}

// New starts n nodes on free ports of 127.0.0.1. The caller closes them.
func New(n int) (*Nodes, error) {
	if n < 1 {
		return nil, fmt.Errorf("redlocktest: %d nodes: at least one is needed", n)
	}
	nodes := &Nodes{}
	for range n {
		node, err := startNode()
		if err != nil {
			return nil, errors.Join(err, nodes.Close())
		}
		nodes.all = append(nodes.all, node)
	}
	return nodes, nil
}

// Close stops all nodes and closes their clients. None of their goroutines is
// left when it returns. It may be called twice.
func (ns *Nodes) Close() error {
	var errs []error
	for _, n := range ns.all {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// Len returns the number of nodes.
func (ns *Nodes) Len() int { return len(ns.all) }

// Node returns the i-th node, from 0.
func (ns *Nodes) Node(i int) *Node { return ns.all[i] }

// All returns the nodes in their order.
func (ns *Nodes) All() []*Node { return slices.Clone(ns.all) }

// URLs returns the URL of each node, see [Node.URL].
func (ns *Nodes) URLs() []string {
	urls := make([]string, len(ns.all))
	for i, n := range ns.all {
		urls[i] = n.URL()
	}
	return urls
}

// Clients returns the client of each node, see [Node.Client].
func (ns *Nodes) Clients() []*redis.Client {
	clients := make([]*redis.Client, len(ns.all))
	for i, n := range ns.all {
		clients[i] = n.Client()
	}
	return clients
}

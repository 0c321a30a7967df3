package servers

import (
	"context"
	"testing"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// embeddedNode is a miniredis inside the test. It needs nothing installed, and is not Redis: what it cannot show is left
// to the other kinds.
type embeddedNode struct{ *redlocktest.Node }

// embeddedMissing is always nil: embedded nodes are part of the test binary.
func embeddedMissing() error { return nil }

func startEmbedded(t testing.TB, n int, cfg config) ([]node, error) {
	var nodes []node
	for _, each := range redlocktest.Start(t, n).All() {
		if cfg.password != "" {
			each.RequirePassword(cfg.password)
		}
		nodes = append(nodes, embeddedNode{each})
	}
	return nodes, nil
}

func (e embeddedNode) addr() string { return e.Addr() }

func (e embeddedNode) socket() string { return "" }

func (e embeddedNode) up(context.Context, bool) error { return e.Restart() }

func (e embeddedNode) kill(context.Context) error {
	e.Stop()
	return nil
}

func (e embeddedNode) freeze(context.Context) error {
	e.Freeze()
	return nil
}

func (e embeddedNode) thaw(context.Context) error {
	e.Thaw()
	return nil
}

// close leaves the rest to redlocktest.Start, which closes its nodes with the test.
func (e embeddedNode) close(context.Context) error {
	e.Stop()
	return nil
}

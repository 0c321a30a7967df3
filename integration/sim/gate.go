package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gate is a place that nothing passes while it is shut. The zero gate is open.
type gate struct {
	until atomic.Int64 // when it opens: Unix time in nanoseconds, of the bubble

	mu      sync.Mutex // guards changed
	changed chan struct{}
}

// shut closes the gate for d, or until it is opened.
func (g *gate) shut(d time.Duration) { g.set(time.Now().Add(d).UnixNano()) }

func (g *gate) open() { g.set(0) }

func (g *gate) set(until int64) {
	g.until.Store(until)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// left is how long it will be shut; 0 or less: it is open.
func (g *gate) left() time.Duration {
	until := g.until.Load()
	if until == 0 {
		return 0
	}
	return time.Duration(until - time.Now().UnixNano())
}

// pass waits until the gate is open; false if ctx ends before.
func (g *gate) pass(ctx context.Context) bool {
	for {
		if g.left() <= 0 {
			return ctx.Err() == nil
		}
		g.mu.Lock()
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		left := g.left()
		if left <= 0 {
			continue
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

var always = context.Background()

package redlock

import (
	"context"
	"errors"
	"time"
)

// enter begins a call that Close waits for; false once the pool is closed.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.calls.Add(1)
	}
	return !p.closed
}

// Close releases every lock of the pool (their cause is ErrUnlocked), ends waiting calls with ErrClosed, waits for the
// pool's goroutines and closes what Open opened. It takes at most two node timeouts; what could not be undone by then
// is logged and returned as an error, and runs out with its TTL. A second Close waits for the first and returns nil.
func (p *Pool) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	if !first {
		<-p.ended
		return nil
	}
	defer close(p.ended)
	q := p.quorum
	begin := q.clock.mono()
	close(q.closed)

	// 1. Calls under way end at once; then give back what is held.
	p.calls.Wait()
	var releases []*round
	for _, t := range p.dog.all() {
		if r := p.giveUp(t.h); r != nil {
			releases = append(releases, r)
		}
	}
	for _, r := range releases {
		_ = r.await(context.Background(), nil)
		r.h.mu.Lock()
		r.h.released = r.verdict == won
		r.h.mu.Unlock()
	}

	// 2. Let the nodes finish their queues and undo lists, and end them.
	giveUp := begin + 2*p.opts.nodeTimeout
	for _, n := range q.nodes {
		n.close(giveUp)
	}
	close(p.dog.stop)
	abort := time.AfterFunc(max(0, giveUp-q.clock.mono()), func() {
		for _, n := range q.nodes {
			n.abort()
		}
	})
	defer abort.Stop()
	for _, n := range q.nodes {
		<-n.ended
	}

	// 3. Say what is left.
	left := 0
	for _, n := range q.nodes {
		left += n.undoPending()
	}
	var err error
	if left > 0 {
		err = usageError("closed with %d releases unconfirmed; those keys run out with their TTL", left)
		q.events.emit(evUndoPending, Event{Pending: left, Err: err})
	}
	_ = p.run.Wait()
	q.events.close(max(0, giveUp-q.clock.mono()))
	for _, c := range p.owned {
		err = errors.Join(err, c.Close())
	}
	return err
}

// giveUp unlocks a held lock for Close, without waiting.
func (p *Pool) giveUp(h *hold) *round {
	q := p.quorum
	h.mu.Lock()
	ended := h.end(ErrUnlocked)
	ev := q.describe(h)
	h.mu.Unlock()
	if !ended {
		return nil
	}
	h.ended(ErrUnlocked)
	q.counts.released.Add(1)
	q.events.emit(evReleased, ev)
	return q.giveBack(h, make(chan struct{}))
}

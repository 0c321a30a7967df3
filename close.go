package redlock

import (
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
	giveUp := q.clock.mono() + 2*p.opts.nodeTimeout

	// 1. Calls under way end at once; then give back what is held.
	close(q.closed)
	p.calls.Wait()
	p.deafen()
	p.releaseAll()

	// 2. Let the nodes finish their queues and undo lists, and end them.
	left := p.endNodes(giveUp)
	var err error
	if left > 0 {
		err = usageError("closed with %d releases unconfirmed; those keys run out with their TTL", left)
		q.events.emit(evUndoPending, Event{Pending: left, Err: err})
	}

	// 3. End the other goroutines, and what Open opened.
	close(p.dog.stop)
	_ = p.run.Wait()
	q.events.close(max(0, giveUp-q.clock.mono()))
	for _, c := range p.owned {
		err = errors.Join(err, c.Close())
	}
	return err
}

// releaseAll unlocks everything at once and waits for one node timeout at most.
func (p *Pool) releaseAll() {
	q := p.quorum
	type release struct {
		r  *round
		ev Event
	}
	var all []release
	for _, t := range p.dog.all() {
		t.h.mu.Lock()
		ended := t.h.end(ErrUnlocked)
		ev := q.describe(t.h)
		t.h.mu.Unlock()
		if ended {
			t.h.ended(ErrUnlocked)
			all = append(all, release{q.giveBack(t.h, make(chan struct{})), ev})
		}
	}
	for _, each := range all {
		q.finishRelease(each.r, each.ev)
	}
}

// endNodes returns how many releases are left unconfirmed.
func (p *Pool) endNodes(giveUp time.Duration) (left int) {
	q := p.quorum
	for _, n := range q.nodes {
		n.close(giveUp)
	}
	abort := time.AfterFunc(max(0, giveUp-q.clock.mono()), func() {
		for _, n := range q.nodes {
			n.abort()
		}
	})
	defer abort.Stop()
	for _, n := range q.nodes {
		<-n.ended
	}
	for _, n := range q.nodes {
		left += n.undoPending()
	}
	return left
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// play runs the steps until one fails that the others build on.
func (d *tour) play() {
	if !d.acquire() {
		return
	}
	d.refuse()
	if d.nodes == nil {
		d.renew()
		d.handOver()
		return
	}
	steps := []func() bool{d.oneAway, d.twoAway, d.allBack, d.threeAway, d.recover}
	for _, step := range steps {
		if d.ctx.Err() != nil || !step() {
			return
		}
	}
	d.clean()
}

// patience is how long a step waits for what must come: a node that was away may have no vote for a TTL.
func (d *tour) patience() time.Duration { return 2*d.ttl + time.Second }

func (d *tour) acquire() bool {
	d.line.step("client A locks", "%s", d.resource)
	began := time.Now()
	ctx, cancel := context.WithTimeout(d.ctx, d.patience())
	defer cancel()
	lock, err := d.recorder.Lock(ctx, d.holder, d.resource)
	if err != nil {
		d.line.said(time.Now(), red, "not acquired", "%s", d.reasons(err))
		return d.promise("acquire", "a free lock is acquired", false)
	}
	d.lock = lock
	d.line.said(time.Now(), green, "acquired", "after %.1f ms, valid for %s", milliseconds(time.Since(began)),
		ms(time.Until(lock.ValidUntil())))

	// A majority has decided; the others' grants may still be on their way.
	full := d.poll(time.Second, func() bool { return lock.Margin() == d.count-d.count/2-1 })
	d.line.said(time.Now(), plain, "margin", "%d: %s", lock.Margin(), forgettable(lock.Margin()))
	return d.promise("acquire", "a free lock is acquired, on all nodes", full)
}

// poll waits for what no event tells.
func (d *tour) poll(within time.Duration, done func() bool) bool {
	for end := time.Now().Add(within); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) || d.ctx.Err() != nil {
			return false
		}
	}
	return true
}

func (d *tour) refuse() {
	d.line.step("client B tries", "the same lock, on the same nodes")
	d.promise("exclude", "a second client is refused while the lock is held", d.refused(redlock.ErrHeld))
}

// refused lets the rival try once; it must be refused for the given reason.
func (d *tour) refused(want error) bool {
	lock, err := d.watcher.TryLock(d.ctx, d.rival, d.resource)
	if err == nil {
		d.line.said(time.Now(), red, "acquired", "both clients hold it")
		_ = lock.Unlock(d.ctx)
		return false
	}
	d.line.said(time.Now(), plain, "refused", "%s", d.reasons(err))
	return errors.Is(err, want)
}

func (d *tour) renew() {
	d.line.step("wait", "for a renewal")
	_, ok := d.await(d.patience(), named("renewed"))
	d.promise("renew", "a held lock is renewed in time", ok && d.lock.Valid())
}

// handOver ends a drill without faults.
func (d *tour) handOver() {
	d.line.step("client A unlocks", "")
	if !d.unlock(d.lock) {
		d.promise("next", "the next client gets the lock once it is given back", false)
		return
	}
	d.line.step("client B locks", "%s", d.resource)
	lock, ok := d.lockAgain(d.watcher, d.rival)
	d.promise("next", "the next client gets the lock once it is given back", ok && d.unlock(lock))
}

func (d *tour) unlock(l *redlocktest.Holding) bool {
	err := l.Unlock(d.ctx)
	if err != nil {
		d.line.said(time.Now(), red, "not unlocked", "%s", d.reasons(err))
		return false
	}
	d.line.said(time.Now(), green, "unlocked", "a majority of nodes is free of it")
	return true
}

func (d *tour) oneAway() bool {
	d.line.step("node 5 is stopped", "4 of 5 left")
	d.stop(4)
	return d.promise("one-away", "with one of five nodes away the lock is held and renewed", d.degrades(4))
}

func (d *tour) twoAway() bool {
	d.line.step("node 4 is stopped too", "3 of 5 left: a bare majority")
	d.stop(3)
	return d.promise("two-away", "with two of five nodes away the lock is held and renewed", d.degrades(3))
}

// degrades waits until the lock was found to be on no more than n nodes, and renewed on those. It is said to be degraded
// once, not anew for each node.
func (d *tour) degrades(n int) bool {
	renewed := false
	_, ok := d.await(d.patience(), func(ev redlock.Event) bool {
		d.degraded = d.degraded || ev.Name == "degraded"
		renewed = renewed || ev.Name == "renewed" && ev.Granted <= n
		return ev.Name == "lost" || d.degraded && renewed
	})
	return ok && d.lock.Valid()
}

func (d *tour) allBack() bool {
	d.line.step("nodes 4 and 5 return", "empty, as after a crash; the lock is given to them again")
	ok := d.restart(3) && d.restart(4)
	if ok {
		_, ok = d.await(d.patience(), named("restored"))
	}
	return d.promise("restore", "the lock is given to nodes that return", ok && d.lock.Valid())
}

func (d *tour) stop(i int) {
	d.note(redlocktest.Fault, "stopped", i)
	d.nodes.Node(i).Stop()
}

func (d *tour) freeze(i int) {
	d.note(redlocktest.Fault, "frozen", i)
	d.nodes.Node(i).Freeze()
}

func (d *tour) thaw(i int) {
	d.nodes.Node(i).Thaw()
	d.note(redlocktest.Healed, "frozen", i)
}

// note records what is done to a node.
func (d *tour) note(kind redlocktest.Kind, what string, i int) {
	d.history.Add(redlocktest.Record{Kind: kind, Text: what, Node: d.nodes.Node(i).Addr()})
}

func (d *tour) restart(i int) bool {
	err := d.nodes.Node(i).Restart()
	if err == nil {
		d.note(redlocktest.Healed, "stopped", i)
	}
	if err != nil {
		d.line.said(time.Now(), red, "no restart", "node %d: %v", i+1, err)
	}
	return err == nil
}

// threeAway takes the majority away: the lock must end, and be told so before anybody else could own it.
func (d *tour) threeAway() bool {
	told := make(chan time.Time, 1)
	go func() { // ends with the lock: it is lost, or unlocked by the pool's Close
		<-d.lock.Context().Done()
		told <- time.Now()
	}()
	d.line.step("nodes 3 and 5 are stopped,", "only 2 of 5 answer: nobody can know any more")
	d.line.row(time.Now(), bold, "node 4 is frozen", "")
	d.stop(2)
	d.freeze(3)
	d.stop(4)

	// 1. It cannot be renewed; so far it is still held.
	_, failed := d.await(d.patience(), named("renewal_failed"))
	deadline := d.lock.ValidUntil()
	held := d.lock.Valid()

	// 2. Nobody else gets it.
	d.line.step("client B tries", "with the majority away")
	d.promise("blocked", "without a majority nobody gets the lock", d.refused(redlock.ErrNoQuorum))

	// 3. It ends by the clock.
	d.line.step("wait", "for the deadline")
	_, lost := d.await(d.patience(), named("lost"))
	if !lost {
		return d.promise("lost", "a lock that cannot be renewed is lost by its deadline", false)
	}
	late := (<-told).Sub(deadline)
	spare := time.Duration(float64(d.ttl)*driftFactor) + driftFloor - late
	d.line.said(time.Now(), plain, "deadline", "was at %.3f; told %.1f ms later, %.1f ms before another client could own the lock",
		deadline.Sub(d.line.start).Seconds(), milliseconds(late), milliseconds(spare))
	if spare <= 0 {
		d.line.said(time.Now(), red, "too late", "this machine was too busy to run the drill at its time")
	}
	return d.promise("lost", "a lock that cannot be renewed is lost by its deadline, and says so",
		failed && held && spare > 0 && !d.lock.Valid() && errors.Is(d.lock.Err(), redlock.ErrLost))
}

func (d *tour) recover() bool {
	d.line.step("all nodes return", "")
	d.thaw(3)
	ok := d.restart(2) && d.restart(4)
	if ok {
		d.line.step("client A locks", "%s, once more", d.resource)
		d.lock, ok = d.lockAgain(d.recorder, d.holder)
	}
	return d.promise("recover", "the lock is acquired again once a majority is back", ok)
}

func (d *tour) lockAgain(r *redlocktest.Recorder, p *redlock.Pool) (*redlocktest.Holding, bool) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(d.ctx, d.patience())
	defer cancel()
	lock, err := r.Lock(ctx, p, d.resource)
	d.drain()
	if err != nil {
		d.line.said(time.Now(), red, "not acquired", "%s", d.reasons(err))
		return nil, false
	}
	d.line.said(time.Now(), green, "acquired", "after %.1f ms, valid for %s", milliseconds(time.Since(began)),
		ms(time.Until(lock.ValidUntil())))
	return lock, true
}

// drain prints the events that have come already.
func (d *tour) drain() {
	for {
		select {
		case ev := <-d.events:
			d.show(ev)
		default:
			return
		}
	}
}

// clean checks that the end leaves no key behind, also not the one that node 4 held while it was frozen.
func (d *tour) clean() {
	d.line.step("client A unlocks", "")
	ok := d.unlock(d.lock)
	ok = d.poll(d.ttl+3*time.Second, func() bool { return len(d.leftovers()) == 0 }) && ok
	d.drain()
	if left := d.leftovers(); len(left) > 0 {
		d.line.said(time.Now(), red, "left behind", "%s", strings.Join(left, ", "))
	} else {
		d.line.said(time.Now(), green, "clean", "no node has a key of it any more")
	}
	d.promise("clean", "nothing of it stays on any node", ok)
}

// leftovers are keys of the lock on any node.
func (d *tour) leftovers() []string {
	var left []string
	for i, n := range d.nodes.All() {
		if slices.Contains(n.Keys(), d.prefix()+d.resource) {
			left = append(left, fmt.Sprintf("node %d", i+1))
		}
	}
	return left
}

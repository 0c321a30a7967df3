package redlocktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// Holding is a lock whose life is recorded. Loss and renewals are recorded by
// themselves; use its Unlock and Extend, not those of the lock inside.
type Holding struct {
	*redlock.Lock
	r         *Recorder // this group is set by Hold, then read-only
	resources []string

	mu       sync.Mutex // guards the fields below
	deadline time.Duration
	over     bool
	unlocked chan struct{} // closed when Unlock is called
}

// Check reports whether the lock is valid, and records that it was, with the
// deadline that it names: a lock that is valid after that lies.
func (hd *Holding) Check() bool {
	at, deadline := hd.ask() // before asking: what is valid afterwards was so before
	ok := hd.Valid()
	if ok {
		if hd.r.history.Now()-at > grain {
			deadline = 0 // interrupted: nobody knows which moment it is of
		}
		hd.add(Record{At: at, Kind: Checked, Deadline: deadline})
	}
	return ok
}

// Extend is [redlock.Lock.Extend]; the deadline is recorded.
func (hd *Holding) Extend(ctx context.Context) error {
	err := hd.Lock.Extend(ctx)
	hd.look()
	return err
}

// Unlock is [redlock.Lock.Unlock]; its call and its return are recorded.
func (hd *Holding) Unlock(ctx context.Context) error {
	began := hd.releasing()
	err := hd.Lock.Unlock(ctx)
	rec := Record{Kind: Released, Began: began}
	if err != nil {
		rec.Text = err.Error()
	}
	hd.add(rec)
	return err
}

// Write adds one to the store's counter of each of the lock's resources, under
// the lock's fence, whatever has become of the lock: it is the store that has to
// refuse a late writer. It returns the first error.
func (hd *Holding) Write(ctx context.Context, store Store) error {
	for _, resource := range hd.resources {
		rec := Record{Began: hd.r.history.Now(), Resources: []string{resource}}
		value, err := store.Increment(ctx, resource, hd.Fence())
		switch {
		case err == nil:
			rec.Kind, rec.Value = Wrote, value
		case errors.Is(err, ErrStale):
			rec.Kind = Refused
		default:
			rec.Kind, rec.Text = Unknown, err.Error()
		}
		hd.add(rec)
		if err != nil {
			return err
		}
	}
	return nil
}

// add records rec as this hold's.
func (hd *Holding) add(rec Record) {
	rec.Hold, rec.Fence = hd.Token(), hd.Fence()
	if rec.Resources == nil {
		rec.Resources = hd.resources
	}
	hd.r.Add(rec)
}

// ask returns the deadline, and a time at which it was known already. The lock
// answers on the wall clock, so the history's is read close by: the two readings
// may be a tenth of a millisecond apart, more only on a machine that never lets
// us get that close. The deadline is never later than the true one.
func (hd *Holding) ask() (at, deadline time.Duration) {
	const tries, close = 20, 100 * time.Microsecond
	for range tries {
		at = hd.r.history.Now()
		deadline = at + time.Until(hd.ValidUntil())
		if hd.r.history.Now()-at <= close {
			break
		}
	}
	return at, deadline
}

// look records the deadline if it has moved, and returns it.
func (hd *Holding) look() time.Duration {
	at, deadline := hd.ask()
	if deadline <= at {
		return deadline // it is over, which others record
	}
	hd.mu.Lock()
	moved := !hd.over && ((deadline - hd.deadline).Abs() > grain)
	if moved {
		hd.deadline = deadline
	}
	hd.mu.Unlock()
	if moved {
		hd.add(Record{At: at, Kind: Extended, Deadline: deadline})
	}
	return deadline
}

// releasing records that Unlock is called, and returns when.
func (hd *Holding) releasing() time.Duration {
	at, deadline := hd.ask()
	rec := Record{At: at, Kind: Releasing}
	if deadline > at {
		rec.Deadline = deadline
	}
	hd.mu.Lock()
	first := !hd.over
	if hd.over = true; first {
		close(hd.unlocked)
	}
	hd.mu.Unlock()
	hd.r.forget(hd)
	hd.add(rec)
	return at
}

// watch records the loss, and, where nobody told of them, renewals. It ends with
// the lock, or soon after its deadline if that is told in one way only.
func (hd *Holding) watch(lost, dead <-chan struct{}) {
	defer hd.r.forget(hd)
	timer := time.NewTimer(hd.pause())
	defer timer.Stop()
	for {
		select {
		case <-hd.unlocked:
			return
		case <-lost:
		case <-dead:
			if !errors.Is(hd.Err(), redlock.ErrLost) {
				return // the pool was closed
			}
		case <-timer.C:
			hd.look()
			if wait := hd.pause(); wait > 0 {
				timer.Reset(wait)
			}
			continue
		}
		if missing, unlocked := hd.await(lost, dead); !unlocked {
			hd.lost(missing)
		}
		return
	}
}

// await waits until the loss was told in both ways: a holder listens to one of
// them. What has not come a while after the deadline is missing, and the loss told
// as late as that.
func (hd *Holding) await(lost, dead <-chan struct{}) (missing string, unlocked bool) {
	const enough = time.Second // more than any slack
	hd.mu.Lock()
	left := hd.deadline - hd.r.history.Now()
	hd.mu.Unlock()
	timer := time.NewTimer(max(left, 0) + enough)
	defer timer.Stop()
	for lost != nil || dead != nil {
		select {
		case <-lost:
			lost = nil
		case <-dead:
			dead = nil
		case <-hd.unlocked:
			return "", true
		case <-timer.C:
			if lost != nil {
				return ", and Lost was not closed", false
			}
			return ", and Context did not end", false
		}
	}
	return "", false
}

// pause is how long to wait before asking for the deadline again; 0 is never:
// it passed long ago, and only the loss is still to come.
func (hd *Holding) pause() time.Duration {
	const poll, enough = 10 * time.Millisecond, time.Second
	hd.mu.Lock()
	defer hd.mu.Unlock()
	left := hd.deadline - hd.r.history.Now()
	if left < -enough {
		return 0
	}
	return max(left, poll)
}

func (hd *Holding) lost(missing string) {
	told := hd.r.history.Now()
	_, deadline := hd.ask()
	hd.mu.Lock()
	first := !hd.over
	hd.over = true
	hd.mu.Unlock()
	if first {
		hd.add(Record{At: told, Kind: Lost, Deadline: deadline, Text: lossText(hd.Err()) + missing})
	}
}

package redlocktest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// Recorder records what one client does: one pool in one process. Its methods
// are safe for concurrent use.
type Recorder struct {
	history *History // this group is set by Client, then read-only
	name    string

	mu   sync.Mutex            // guards the field below
	held map[string][]*Holding // by resources
}

// Client returns a recorder for the client of that name. Each client needs a name
// of its own: one that starts again after [Ended] may use it again.
func (h *History) Client(name string) *Recorder {
	return &Recorder{history: h, name: name, held: map[string][]*Holding{}}
}

// Name returns the client's name.
func (r *Recorder) Name() string { return r.name }

// Add records rec as the client's.
func (r *Recorder) Add(rec Record) {
	rec.Client = r.name
	r.history.Add(rec)
}

// Observer returns functions for the pool's [redlock.WithObserver]: they record
// renewals when they happen, and what the library says of its nodes. Without
// them a renewal is seen at the latest when the deadline before it comes.
func (r *Recorder) Observer() redlock.Observer {
	says := func(text string) func(redlock.Event) {
		return func(e redlock.Event) { r.Add(Record{Kind: NodeSays, Node: e.Node, Text: text}) }
	}
	return redlock.Observer{
		Renewed:      func(e redlock.Event) { r.renewed(e.Resources) },
		NodeLost:     says("lost"),
		NodeBack:     says("back"),
		NodeUnsteady: says("unsteady"),
		NodeSteady:   says("steady"),
		ClockStepped: says("clock"),
	}
}

// renewed is told that a hold of these resources was renewed; an event does not
// say which, so all are asked.
func (r *Recorder) renewed(resources []string) {
	r.mu.Lock()
	all := append([]*Holding(nil), r.held[keyOf(resources)]...)
	r.mu.Unlock()
	for _, hd := range all {
		hd.look()
	}
}

// Lock is [redlock.Pool.Lock], recorded.
func (r *Recorder) Lock(ctx context.Context, pool *redlock.Pool, resource string, opts ...redlock.LockOption) (*Holding, error) {
	return r.record([]string{resource}, func() (*redlock.Lock, error) { return pool.Lock(ctx, resource, opts...) })
}

// TryLock is [redlock.Pool.TryLock], recorded.
func (r *Recorder) TryLock(ctx context.Context, pool *redlock.Pool, resource string, opts ...redlock.LockOption) (*Holding, error) {
	return r.record([]string{resource}, func() (*redlock.Lock, error) { return pool.TryLock(ctx, resource, opts...) })
}

// MultiLock is [redlock.Pool.MultiLock], recorded.
func (r *Recorder) MultiLock(ctx context.Context, pool *redlock.Pool, resources []string, opts ...redlock.LockOption) (*Holding, error) {
	return r.record(resources, func() (*redlock.Lock, error) { return pool.MultiLock(ctx, resources, opts...) })
}

// TryMultiLock is [redlock.Pool.TryMultiLock], recorded.
func (r *Recorder) TryMultiLock(ctx context.Context, pool *redlock.Pool, resources []string, opts ...redlock.LockOption) (*Holding, error) {
	return r.record(resources, func() (*redlock.Lock, error) { return pool.TryMultiLock(ctx, resources, opts...) })
}

func (r *Recorder) record(resources []string, acquire func() (*redlock.Lock, error)) (*Holding, error) {
	began := r.history.Now()
	l, err := acquire()
	if err != nil {
		r.Add(Record{Kind: Failed, Resources: resources, Began: began, Text: err.Error()})
		return nil, err
	}
	return r.Hold(l, began), nil
}

// Hold records a lock that was taken otherwise, by a call that began at the given
// time of [History.Now]. Call it as soon as the lock is there.
func (r *Recorder) Hold(l *redlock.Lock, began time.Duration) *Holding {
	hd := &Holding{Lock: l, r: r, resources: l.Resources(), unlocked: make(chan struct{})}
	at, deadline := hd.ask()
	hd.deadline = deadline
	r.Add(Record{At: at, Kind: Acquired, Hold: l.Token(), Resources: hd.resources, Fence: l.Fence(), Began: began, Deadline: deadline})
	key := keyOf(hd.resources)
	r.mu.Lock()
	r.held[key] = append(r.held[key], hd)
	r.mu.Unlock()
	go hd.watch(l.Lost(), l.Context().Done()) // ends with the lock
	return hd
}

// forget takes a holding that is over off the list.
func (r *Recorder) forget(hd *Holding) {
	key := keyOf(hd.resources)
	r.mu.Lock()
	defer r.mu.Unlock()
	var kept []*Holding
	for _, other := range r.held[key] {
		if other != hd {
			kept = append(kept, other)
		}
	}
	if len(kept) == 0 {
		delete(r.held, key)
		return
	}
	r.held[key] = kept
}

// Close closes the client's pool and records that: what is held is given back
// first, and the client has [Ended] afterwards.
func (r *Recorder) Close(pool *redlock.Pool) error {
	r.mu.Lock()
	var all []*Holding
	for _, some := range r.held {
		all = append(all, some...)
	}
	r.mu.Unlock()
	for _, hd := range all {
		hd.releasing()
	}
	err := pool.Close()
	r.Add(Record{Kind: Ended})
	return err
}

// MeasureDelay looks every ten milliseconds how late a timer of this process is
// and records the worst of each second as [Delayed]. A tenth of a second or more
// is recorded as [Frozen] instead: the process, or the whole machine, stood still.
// It blocks until ctx ends. [History.CheckHonest] excuses what was late because
// of that, so every process of a test with real time should run it.
func (r *Recorder) MeasureDelay(ctx context.Context) {
	const (
		every  = 10 * time.Millisecond
		report = time.Second
		still  = 100 * time.Millisecond
	)
	ticker := time.NewTimer(every)
	defer ticker.Stop()
	began, worst := r.history.Now(), time.Duration(0)
	flush := func(now time.Duration) {
		r.Add(Record{At: now, Kind: Delayed, Began: began, Late: worst})
		began, worst = now, 0
	}
	for before := began; ; {
		select {
		case <-ctx.Done():
			flush(r.history.Now())
			return
		case <-ticker.C:
		}
		now := r.history.Now()
		if late := now - before - every; late < still {
			worst = max(worst, late)
		} else {
			r.Add(Record{At: now, Kind: Frozen, Began: before})
		}
		if now-began >= report {
			flush(now)
		}
		before = r.history.Now()
		ticker.Reset(every)
	}
}

// lossText is the Text of a [Lost] record.
func lossText(err error) string {
	switch {
	case errors.Is(err, redlock.ErrMaxHold):
		return MaxHoldOver
	case errors.Is(err, redlock.ErrHeld), errors.Is(err, redlock.ErrNoQuorum):
		return err.Error()
	case said(err) == 1 && errors.Is(err, redlock.ErrLost):
		return LeaseOver // it has no other cause; one that is not known yet is told as it is
	}
	return err.Error()
}

// said counts what err says directly.
func said(err error) int {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return len(several.Unwrap())
	}
	return 1
}

func keyOf(resources []string) string { return strings.Join(resources, "\x00") }

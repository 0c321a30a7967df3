package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// eventually asks until ask returns nil, and fails the test with its last answer if that takes longer than bound.
func eventually(t *testing.T, bound time.Duration, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(bound)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		last := !time.Now().Before(deadline)
		err := ask()
		if err == nil {
			return
		}
		if last {
			t.Fatalf("not within %v: %s: %v", bound, what, err)
		}
		<-pause.C
	}
}

// throughout asks for as long as d, and fails the test at the first error.
func throughout(t *testing.T, d time.Duration, ask func() error) {
	t.Helper()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-pause.C {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
}

// within fails the test if f takes longer than bound and the slack of a busy machine.
func within(t *testing.T, bound time.Duration, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	took := time.Since(start)
	require.LessOrEqual(t, took, bound+slack, "%s took %v", what, took)
}

// mustLock takes the lock "a".
func mustLock(t *testing.T, p *redlock.Pool, opts ...redlock.LockOption) *redlock.Lock {
	t.Helper()
	l, err := p.Lock(bg, "a", opts...)
	require.NoError(t, err)
	return l
}

// reasons collects the per-node reasons of an error.
func reasons(t *testing.T, err error) map[string]string {
	t.Helper()
	var q *redlock.QuorumError
	require.ErrorAs(t, err, &q)
	m := map[string]string{}
	for _, n := range q.Nodes {
		m[n.Node] = n.Err.Error()
	}
	return m
}

// accuracy is how exactly deadline reads a deadline.
const accuracy = 100 * time.Microsecond

// deadline is the lock's deadline. A reading of ValidUntil is early by as much as the process was held up within it, so
// the latest of some is taken.
func deadline(l *redlock.Lock) time.Time {
	latest := l.ValidUntil()
	for range 20 {
		if at := l.ValidUntil(); at.After(latest) {
			latest = at
		}
	}
	return latest
}

// awaitLoss waits for a loss that nothing can avert any more, and returns how late after the deadline it was told. It
// calls nothing that would itself find the lock lost: it is for the library to tell.
func awaitLoss(t *testing.T, l *redlock.Lock) (late time.Duration) {
	t.Helper()
	began, until := time.Now(), deadline(l)
	timeout := time.After(time.Until(until) + patience)
	for {
		if time.Since(began) < nodeTimeout { // a renewal that was answered before the fault may still be counted
			if at := deadline(l); at.After(until) {
				until = at
			}
		}
		select {
		case <-l.Lost():
			return time.Since(until)
		case <-timeout:
			t.Fatal("the loss is not told")
		case <-time.After(time.Millisecond):
		}
	}
}

// tillLost calls Valid until it is false, and fails the test if it is true after the deadline.
func tillLost(t *testing.T, l *redlock.Lock) {
	until := deadline(l)
	for {
		asked := time.Now()
		if !l.Valid() {
			return
		}
		if at := deadline(l); at.After(until) {
			until = at
		}
		if late := asked.Sub(until); late > accuracy {
			t.Errorf("Valid %v after the deadline", late)
			return
		}
		<-time.After(time.Millisecond)
	}
}

// recorder keeps the events of a pool by name.
type recorder struct {
	mu     sync.Mutex
	events map[string][]redlock.Event
}

func (r *recorder) observer() redlock.Observer {
	r.events = map[string][]redlock.Event{}
	note := func(e redlock.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[e.Name] = append(r.events[e.Name], e)
	}
	return redlock.Observer{Acquired: note, Denied: note, Renewed: note, RenewalFailed: note, Degraded: note,
		Restored: note, Lost: note, Released: note, NodeLost: note, NodeBack: note, NodeUnsteady: note, NodeSteady: note,
		ClockStepped: note, UndoPending: note, Warning: note}
}

func (r *recorder) of(name string) []redlock.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[name])
}

// renewals waits until the pool, which holds one lock, has renewed k times more.
func renewals(t *testing.T, p *redlock.Pool, k uint64) {
	t.Helper()
	want := p.Stats().Renewed + k
	eventually(t, patience, fmt.Sprint(k, " more renewals"), func() error {
		if got := p.Stats().Renewed; got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

// owned waits until n servers hold the lock's key.
func (r *rig) owned(l *redlock.Lock, n int, bound time.Duration) {
	r.t.Helper()
	eventually(r.t, bound, fmt.Sprint("on ", n, " servers"), func() error {
		if got := r.owners("lock:"+l.Resources()[0], l.Token()); got != n {
			return fmt.Errorf("on %d", got)
		}
		return nil
	})
}

// gone waits until no key is left, as long as an undo may take.
func (r *rig) gone() {
	r.t.Helper()
	eventually(r.t, undoBound+slack, "no key is left", func() error { return none(r.keys()) })
}

// percentile sorts ds.
func percentile(ds []time.Duration, p float64) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)-1, int(float64(len(ds))*p))]
}

var errNotYet = errors.New("not yet")

// is turns a condition into what eventually asks for.
func is(ok bool) error {
	if ok {
		return nil
	}
	return errNotYet
}

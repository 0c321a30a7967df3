package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

// split takes lock:a off one node, so that who tries now is granted there and denied elsewhere, and will ask one node
// first the next time: that one.
func split(ps []*peer) (leader *peer) {
	lead := 0
	for _, c := range []byte("lock:a") {
		lead = (lead*31 + int(c)) % len(ps)
	}
	free := (lead + 1) % len(ps)
	ps[free].do(func() { delete(ps[free].Keys, "lock:a") })
	for i, x := range ps {
		if i != free && i != lead { // their answers come later
			x.do(func() { x.delay = time.Millisecond })
		}
	}
	return ps[lead]
}

func TestTheNodeThatIsAskedFirstKeepsNobodyFromAFreeLock(t *testing.T) {
	for name, harm := range map[string]func(x *peer){
		"foreign key": func(x *peer) { x.do(func() { x.Keys["lock:a"] = model.Value{S: "foreign"} }) },
		"orphan": func(x *peer) {
			x.do(func() { x.Keys["lock:a"] = model.Value{S: "x", Expires: time.Now().Add(time.Hour)} })
		},
		"dead": func(x *peer) { x.refuseAll() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p, other := testPool(t, ps), testPool(t, ps)
				warm(t, other)
				l := mustLock(t, p)
				synctest.Wait()
				leader := split(ps)
				time.AfterFunc(500*time.Millisecond, func() { harm(leader) })
				require.Less(t, waitsFor(t, l, other), lookEvery+leadGrace)
			})
		})
	}
}

// A goroutine that holds b wants a, while a call for both waits for b.
func TestACallForSeveralKeepsNobodyFromOneOfThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := testPool(t, newPeers(t, 5))
		b, err := p.Lock(bg, "b")
		require.NoError(t, err)
		both := make(chan error)
		go func() {
			l, err := p.MultiLock(bg, []string{"a", "b"})
			if err == nil {
				err = l.Unlock(bg)
			}
			both <- err
		}()
		inLine(t, p, 1)
		lockAndUnlock(t, p, "a")
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		a, err := p.Lock(ctx, "a")
		require.NoError(t, b.Unlock(bg))
		require.NoError(t, err)
		require.NoError(t, a.Unlock(bg))
		require.NoError(t, <-both)
	})
}

// The key is another process's: what the call for several has heard of it must not stop the others.
func TestACallForSeveralThatWaitsForOthersKeepsNobodyFromTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p, other := testPool(t, ps), testPool(t, ps)
		b, err := other.Lock(bg, "b")
		require.NoError(t, err)
		both := make(chan error)
		go func() {
			l, err := p.MultiLock(bg, []string{"a", "b"}, never)
			if err == nil {
				err = l.Unlock(bg)
			}
			both <- err
		}()
		inLine(t, p, 1)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		a, err := p.Lock(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, a.Unlock(bg))
		start := time.Now()
		require.NoError(t, b.Unlock(bg))
		require.NoError(t, <-both)
		require.Less(t, time.Since(start), 10*time.Millisecond)
	})
}

func TestACallThatDidNotGetItsTurnSaysWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps)
		mustLock(t, p)
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		go func() { _, _ = p.Lock(ctx, "a") }()
		inLine(t, p, 1)
		short, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		before := p.Stats().Denied
		_, err := p.Lock(short, "a")
		require.ErrorIs(t, err, ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, before+1, p.Stats().Denied)
	})
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.refuseAll()
		}
		p := testPool(t, ps)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_, err := p.Lock(ctx, "a", WithFair())
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, nodeReasons(t, err), 5)
		require.ErrorContains(t, err, "connection refused")
		require.EqualValues(t, 1, p.Stats().NoQuorum)
	})
}

func TestARefusedFairCallAsksNothingOfTheNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := testPool(t, ps, WithMaxWaiters(1))
		mustLock(t, p)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		go func() { _, _ = p.Lock(ctx, "a") }()
		inLine(t, p, 1)
		before := counts(ps, "leave") + counts(ps, "join")
		_, err := p.Lock(bg, "a", WithFair())
		require.ErrorIs(t, err, ErrTooManyWaiters)
		synctest.Wait()
		require.Equal(t, before, counts(ps, "leave")+counts(ps, "join"))
	})
}

func TestAServerThatIsLoadingIsHeardAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		warnings := make(chan Event, 100)
		p, other := testPool(t, ps), testPool(t, ps, WithObserver(Observer{Warning: func(e Event) { warnings <- e }}))
		for _, x := range ps {
			x.Errs["subscribe"] = "LOADING Redis is loading the dataset in memory"
		}
		l := mustLock(t, p)
		time.AfterFunc(500*time.Millisecond, func() {
			for _, x := range ps {
				x.do(func() { delete(x.Errs, "subscribe") })
			}
		})
		require.Less(t, waitsFor(t, l, other, never), 10*time.Millisecond)
		require.Empty(t, warnings, "it is no refusal")
	})
}

// Of two calls for several resources the later one becomes the first in one queue.
func TestAFairCallForSeveralIsFirstOnlyWhereItIsFirstInAllQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		slowly(ps)
		p, second, third, other := testPool(t, ps), testPool(t, ps), testPool(t, ps), testPool(t, ps)
		for _, each := range []*Pool{second, third, other} {
			warm(t, each)
		}
		c, err := p.Lock(bg, "c")
		require.NoError(t, err)
		order := make(chan string, 2)
		both := func(p *Pool, name string, resources ...string) {
			l, err := p.MultiLock(bg, resources, WithFair())
			require.NoError(t, err)
			order <- name
			require.NoError(t, l.Unlock(bg))
		}
		go both(second, "second", "b", "c")
		time.Sleep(100 * time.Millisecond)
		a, err := other.Lock(bg, "a", WithFair())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(bg)
		go func() { _, _ = other.Lock(ctx, "a", WithFair()) }() // before the third in the queue of a
		time.Sleep(100 * time.Millisecond)
		go both(third, "third", "a", "b")
		time.Sleep(5 * time.Second)
		cancel()
		require.NoError(t, a.Unlock(bg))
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, c.Unlock(bg))
		require.Equal(t, "second", <-order)
		require.Equal(t, "third", <-order)
	})
}

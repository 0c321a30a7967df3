package redlocktest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed71a1c8e3/redlock"
)

// openPool makes a pool of the nodes, closed when the test ends. It has no restart
// guard unless the test asks for one: whether fresh nodes vote is not tested here.
func openPool(t testing.TB, nodes *Nodes, opts ...redlock.Option) *redlock.Pool {
	t.Helper()
	pool, err := redlock.New(nodes.Clients(), append([]redlock.Option{redlock.WithRestartGuard(0)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// only returns the records of these kinds.
func only(records []Record, kinds ...Kind) []Record {
	return slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return !slices.Contains(kinds, r.Kind) })
}

func kindsOf(records []Record) []Kind {
	var kinds []Kind
	for _, r := range records {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

func TestAHoldIsRecordedFromAcquireToRelease(t *testing.T) {
	ctx := testContext(t)
	pool := openPool(t, Start(t, 3))
	h, store := NewHistory(), NewStore()
	r := h.Client("a")
	before := h.Now()
	hd, err := r.Lock(ctx, pool, "r")
	require.NoError(t, err)
	require.True(t, hd.Check())
	require.NoError(t, hd.Write(ctx, store))
	require.NoError(t, hd.Unlock(ctx))
	require.False(t, hd.Check(), "and not recorded")
	_, err = store.Increment(ctx, "r", hd.Fence()+1)
	require.NoError(t, err)
	require.ErrorIs(t, hd.Write(ctx, store), ErrStale)

	all := h.Records()
	require.Equal(t, []Kind{Acquired, Checked, Wrote, Releasing, Released, Refused}, kindsOf(all))
	for _, rec := range all {
		require.Equal(t, "a", rec.Client)
		require.Equal(t, hd.Token(), rec.Hold)
		require.Equal(t, []string{"r"}, rec.Resources)
		require.Equal(t, hd.Fence(), rec.Fence)
	}
	require.GreaterOrEqual(t, all[0].Began, before)
	require.Greater(t, all[0].At, all[0].Began)
	const validity = 30*time.Second - 302*time.Millisecond
	require.Greater(t, all[0].Deadline, all[0].Began+validity-time.Millisecond)
	require.LessOrEqual(t, all[0].Deadline, all[0].At+validity)
	require.InDelta(t, all[0].Deadline, all[1].Deadline, float64(time.Millisecond), "valid until then, it said")
	require.EqualValues(t, 1, all[2].Value)
	require.Equal(t, all[3].At, all[4].Began)
	require.InDelta(t, all[0].Deadline, all[3].Deadline, float64(time.Millisecond), "still valid when Unlock was called")
}

func TestACallWithoutSuccessIsRecorded(t *testing.T) {
	ctx := testContext(t)
	pool := openPool(t, Start(t, 3))
	h := NewHistory()
	hd, err := h.Client("a").MultiLock(ctx, pool, []string{"s", "r"})
	require.NoError(t, err)
	_, err = h.Client("b").TryLock(ctx, pool, "r")
	require.ErrorIs(t, err, redlock.ErrHeld)
	_, err = h.Client("b").TryMultiLock(ctx, pool, []string{"s"})
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, hd.Unlock(ctx))
	all := h.Records()
	require.Equal(t, []Kind{Acquired, Failed, Failed, Releasing, Released}, kindsOf(all))
	require.Equal(t, []string{"r", "s"}, all[0].Resources)
	require.Contains(t, all[1].Text, "held by another")
	require.Positive(t, all[1].Began)
}

func TestALossIsRecordedWithItsCauseAndDeadline(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 3)
	pool := openPool(t, nodes, redlock.WithTTL(400*time.Millisecond))
	for name, c := range map[string]struct {
		opt  redlock.LockOption
		do   func()
		text string
	}{
		"lease":    {redlock.WithLease(100 * time.Millisecond), func() {}, LeaseOver},
		"max hold": {redlock.WithMaxHold(100 * time.Millisecond), func() {}, MaxHoldOver},
		"no node":  {redlock.WithTTL(300 * time.Millisecond), func() { nodes.Node(0).Freeze(); nodes.Node(1).Freeze() }, "lost: "},
	} {
		h := NewHistory()
		hd, err := h.Client("a").Lock(ctx, pool, name, c.opt)
		require.NoError(t, err)
		c.do()
		eventually(t, func() bool { return len(only(h.Records(), Lost)) > 0 }, "told")
		nodes.Node(0).Thaw()
		nodes.Node(1).Thaw()
		lost := only(h.Records(), Lost)
		require.Len(t, lost, 1)
		require.Contains(t, lost[0].Text, c.text)
		require.Equal(t, hd.Token(), lost[0].Hold)
		require.InDelta(t, lost[0].At, lost[0].Deadline, float64(time.Second), name)
		require.Greater(t, lost[0].At, lost[0].Deadline-time.Millisecond, name)
		_ = hd.Unlock(ctx)
	}
}

func TestALossThatIsToldInOneWayOnlyIsRecordedAsToldLate(t *testing.T) {
	for name, missing := range map[string]string{"lost": "Context did not end", "context": "Lost was not closed"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				h := NewHistory(WithClock(func() time.Duration { return time.Since(start) }))
				r := h.Client("a")
				_, client := pipeNode(t, "10.0.0.1:6379")
				pool, err := redlock.New([]*redis.Client{client})
				require.NoError(t, err)
				defer func() { _ = pool.Close() }()
				time.Sleep(time.Second)
				l, err := pool.Lock(t.Context(), "r", redlock.WithLease(5*time.Second))
				require.NoError(t, err)
				hd := r.Hold(l, time.Second)
				hd.mu.Lock()
				hd.over = true // its own watch, which hears both, is not what is tested
				hd.mu.Unlock()
				one := &Holding{Lock: l, r: r, resources: hd.resources, deadline: hd.deadline, unlocked: make(chan struct{})}
				lost, dead := l.Lost(), l.Context().Done()
				if name == "lost" {
					dead = make(chan struct{})
				} else {
					lost = make(chan struct{})
				}
				go one.watch(lost, dead)
				time.Sleep(10 * time.Second)
				synctest.Wait() // and no goroutine is left, or the bubble does not end
				told := only(h.Records(), Lost)
				require.Len(t, told, 1)
				require.Equal(t, hd.deadline+time.Second, told[0].At)
				require.Contains(t, told[0].Text, missing)
				require.Error(t, h.CheckHonest(500*time.Millisecond))
			})
		})
	}
}

func TestACauseThatIsNotKnownIsNoLease(t *testing.T) {
	require.Equal(t, LeaseOver, lossText(redlock.ErrLost))
	require.Equal(t, MaxHoldOver, lossText(errors.Join(redlock.ErrLost, redlock.ErrMaxHold)))
	require.Equal(t, "redlock: lock lost\nanother", lossText(errors.Join(redlock.ErrLost, errors.New("another"))))
}

func TestRenewalsAreRecorded(t *testing.T) {
	for name, observed := range map[string]bool{"as they happen": true, "without an observer": false} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			h := NewHistory()
			r := h.Client("a")
			opts := []redlock.Option{redlock.WithTTL(200 * time.Millisecond)}
			if observed {
				opts = append(opts, redlock.WithObserver(r.Observer()))
			}
			hd, err := r.Lock(ctx, openPool(t, Start(t, 3), opts...), "r")
			require.NoError(t, err)
			eventually(t, func() bool { return len(only(h.Records(), Extended)) >= 3 }, "three renewals")
			require.NoError(t, hd.Extend(ctx))
			require.NoError(t, hd.Unlock(ctx))
			deadline := only(h.Records(), Acquired)[0].Deadline
			for _, rec := range only(h.Records(), Extended) {
				require.Greater(t, rec.Deadline, deadline)
				require.Less(t, rec.At, deadline+time.Second)
				deadline = rec.Deadline
			}
		})
	}
}

func TestWhatTheLibrarySaysOfItsNodesIsRecorded(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 3)
	h := NewHistory()
	r := h.Client("a")
	pool := openPool(t, nodes, redlock.WithTTL(400*time.Millisecond),
		redlock.WithRestartGuard(400*time.Millisecond), redlock.WithObserver(r.Observer()))
	_, err := r.Lock(ctx, pool, "r")
	require.NoError(t, err)
	require.NoError(t, nodes.Node(0).Restart())
	said := func(text string) []Record {
		return slices.DeleteFunc(only(h.Records(), NodeSays), func(r Record) bool { return r.Text != text || r.Node != nodes.Node(0).Addr() })
	}
	eventually(t, func() bool { return len(said("unsteady")) == 1 }, "unsteady")
	unsteady := said("unsteady")[0]
	require.Equal(t, Record{At: unsteady.At, Kind: NodeSays, Client: "a", Node: nodes.Node(0).Addr(), Text: "unsteady"}, unsteady)
	eventually(t, func() bool {
		steady := said("steady")
		return len(steady) > 0 && steady[len(steady)-1].At > unsteady.At
	}, "steady again")
}

func TestClosingThePoolThroughTheRecorderEndsItsHolds(t *testing.T) {
	ctx := testContext(t)
	h := NewHistory()
	r := h.Client("a")
	pool := openPool(t, Start(t, 3))
	for _, name := range []string{"r", "s"} {
		_, err := r.Lock(ctx, pool, name)
		require.NoError(t, err)
	}
	require.NoError(t, r.Close(pool))
	require.Equal(t, []Kind{Acquired, Acquired, Releasing, Releasing, Ended}, kindsOf(h.Records()))
}

func TestAPoolThatIsClosedOtherwiseLeavesNoGoroutine(t *testing.T) {
	ctx := testContext(t)
	h := NewHistory()
	nodes, err := New(3)
	require.NoError(t, err)
	pool := openPool(t, nodes)
	_, err = h.Client("a").Lock(ctx, pool, "r")
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	require.NoError(t, nodes.Close())
	requireNoGoroutines(t)
	require.Equal(t, []Kind{Acquired}, kindsOf(h.Records()), "nobody knows when it was given back")
}

func TestTheDelayOfTimersIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var frozen atomic.Int64 // the bubble's clock never lags, so the history's makes a leap
		h := NewHistory(WithClock(func() time.Duration { return time.Since(start) + time.Duration(frozen.Load()) }))
		ctx, cancel := context.WithCancel(t.Context())
		go h.Client("a").MeasureDelay(ctx)
		time.Sleep(1505 * time.Millisecond)
		synctest.Wait()
		frozen.Store(int64(3 * time.Second))
		time.Sleep(1600 * time.Millisecond)
		cancel()
		synctest.Wait()
		ms := time.Millisecond
		require.Equal(t, []Record{
			{At: 1000 * ms, Kind: Delayed, Client: "a"},
			{At: 4510 * ms, Kind: Frozen, Client: "a", Began: 1500 * ms},
			{At: 4510 * ms, Kind: Delayed, Client: "a", Began: 1000 * ms},
			{At: 5510 * ms, Kind: Delayed, Client: "a", Began: 4510 * ms},
			{At: 6105 * ms, Kind: Delayed, Client: "a", Began: 5510 * ms},
		}, h.Records())
	})
}

// pipeNode is a node without a network, for virtual time.
func pipeNode(t *testing.T, name string) (*Node, *redis.Client) {
	n := &Node{faults: newFaults(), proxy: &Proxy{state: gate{changed: make(chan struct{})}, links: map[*link]struct{}{}}}
	e, err := startEngine(n, "", firstUptime)
	require.NoError(t, err)
	n.engine.Store(e)
	client := redis.NewClient(&redis.Options{Addr: name, Dialer: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		l := newLink(n.proxy, far)
		n.proxy.links[l] = struct{}{}
		n.proxy.running.Go(l.receive)
		n.proxy.running.Go(l.deliver)
		e.serve(l)
		return near, nil
	}})
	t.Cleanup(func() {
		_ = client.Close()
		for _, l := range n.proxy.current() {
			l.kill()
		}
		e.close()
		n.proxy.running.Wait()
	})
	return n, client
}

func TestRecordingWorksInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := NewHistory(WithClock(func() time.Duration { return time.Since(start) }))
		r := h.Client("a")
		var clients []*redis.Client
		for i := range 3 {
			_, client := pipeNode(t, "10.0.0."+itoa(i+1)+":6379")
			clients = append(clients, client)
		}
		pool, err := redlock.New(clients, redlock.WithTTL(9*time.Second), redlock.WithObserver(r.Observer()))
		require.NoError(t, err)
		hd, err := r.Lock(t.Context(), pool, "r", redlock.WithMaxHold(time.Minute))
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.False(t, hd.Check())
		require.NoError(t, r.Close(pool))
		all := h.Records()
		require.Greater(t, len(only(all, Extended)), 10)
		lost := only(all, Lost)[0]
		require.InDelta(t, only(all, Acquired)[0].At+time.Minute, lost.At, float64(time.Second))
		require.Equal(t, lost.Deadline, lost.At)
	})
}

func TestTheStoreRefusesALowerFence(t *testing.T) {
	ctx := testContext(t)
	s := NewStore()
	for i, c := range []struct {
		resource string
		fence    uint64
		value    int64
	}{{"r", 5, 1}, {"r", 5, 2}, {"r", 4, 0}, {"s", 1, 1}, {"r", 7, 3}, {"r", 6, 0}} {
		value, err := s.Increment(ctx, c.resource, c.fence)
		require.Equal(t, c.value, value, i)
		require.Equal(t, c.value == 0, errors.Is(err, ErrStale), i)
	}
	require.EqualValues(t, 3, s.Value("r"))
}

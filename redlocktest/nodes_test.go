package redlocktest

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestNodesAreIndependent(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 3)
	require.Equal(t, 3, nodes.Len())
	require.Len(t, nodes.All(), 3)
	for i, c := range nodes.Clients() {
		require.NoError(t, c.Set(ctx, "who", i, 0).Err())
	}
	for i, n := range nodes.All() {
		require.Same(t, nodes.Node(i), n)
		require.Same(t, nodes.Clients()[i], n.Client(), "made once")
		got, ok := n.Get("who")
		require.True(t, ok)
		require.Equal(t, itoa(i), got)
	}
}

func TestURLsLeadToTheNodes(t *testing.T) {
	ctx := testContext(t)
	nodes := Start(t, 2)
	nodes.Node(1).RequirePassword("s3cret/@")
	for i, u := range nodes.URLs() {
		o, err := redis.ParseURL(u)
		require.NoError(t, err)
		require.Equal(t, nodes.Node(i).Addr(), o.Addr)
		c := bare(t, "", func(b *redis.Options) { *b = *o })
		require.NoError(t, c.Ping(ctx).Err())
	}
	require.Regexp(t, `^redis://127\.0\.0\.1:\d+$`, nodes.Node(0).URL())
}

func TestNoNodesAreRefused(t *testing.T) {
	_, err := New(0)
	require.ErrorContains(t, err, "at least one")
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	ctx := testContext(t)
	nodes, err := New(3)
	require.NoError(t, err)
	for _, c := range nodes.Clients() {
		require.NoError(t, c.Set(ctx, "k", 1, 0).Err())
	}
	// One of each state that could hold a goroutine back.
	sub := nodes.Node(0).Client().Subscribe(ctx, "news")
	_, err = sub.Receive(ctx)
	require.NoError(t, err)
	dial(t, nodes.Node(0).Addr()).send("BLPOP list 0")
	nodes.Node(1).Freeze()
	dial(t, nodes.Node(1).Addr()).send("SET a b")
	eventually(t, func() bool { return nodes.Node(1).Pending() > 0 }, "bytes arrive")
	nodes.Node(2).Delay(time.Hour)
	dial(t, nodes.Node(2).Addr()).send("PING")
	require.NoError(t, nodes.Node(2).WaitRequests(ctx, "PING", 1))

	require.NoError(t, nodes.Close())
	require.NoError(t, sub.Close())
	requireNoGoroutines(t)
	require.NoError(t, nodes.Close(), "twice")
	require.Error(t, nodes.Node(0).Restart(), "a closed node stays closed")
	require.Nil(t, nodes.Node(0).Keys())
}

func TestMethodsMayBeCalledAtTheSameTime(t *testing.T) {
	n := Start(t, 1).Node(0)
	ctx := testContext(t)
	calls := []func(){
		func() { n.Freeze(); n.Thaw() },
		func() { n.Stop(); _ = n.Restart() },
		func() { n.Delay(time.Millisecond); n.Delay(0) },
		func() { n.BlackHole(true); n.BlackHole(false) },
		func() { n.Cut() },
		func() { n.DropReplies(1); n.SwallowReplies(1, "SET"); n.DropReplies(0); n.SwallowReplies(0) },
		func() { n.Fail(OOM); n.Fail("") },
		func() { n.StepClock(time.Second); n.StepClock(-time.Second) },
		func() { n.RequirePassword("x"); n.RequirePassword("") },
		func() {
			n.Set("k", "v", time.Second)
			n.Get("k")
			n.TTL("k")
			n.Keys()
			n.Del("k")
			n.FlushAll()
		},
		func() {
			n.Requests("SET")
			n.Pending()
			n.Connections()
			n.RunID()
			n.URL()
			n.Now()
		},
	}
	c := bare(t, n.Addr(), func(o *redis.Options) { o.ReadTimeout = 20 * time.Millisecond })
	for range 3 {
		calls = append(calls, func() { c.Set(ctx, "k", "v", time.Second); c.Info(ctx); c.Eval(ctx, "return redis.call('TIME')", nil) })
	}
	var wg sync.WaitGroup
	for _, call := range calls {
		wg.Go(func() {
			for range 20 {
				call()
			}
		})
	}
	wg.Wait()
	require.NoError(t, n.Restart())
	require.NoError(t, bare(t, n.Addr()).Ping(ctx).Err())
}

package redlocktest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestDelayIsLatencyAndKeepsOrder(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	const delay = 50 * time.Millisecond
	n.Delay(delay)
	start := time.Now()
	for i := range 100 {
		c.send("ECHO " + itoa(i))
	}
	require.NoError(t, n.WaitRequests(testContext(t), "ECHO", 100))
	executed := time.Now()
	for i := range 100 {
		require.Equal(t, "$"+itoa(len(itoa(i))), c.line())
		require.Equal(t, itoa(i), c.line())
		if i == 0 {
			require.GreaterOrEqual(t, time.Since(start), delay)
		}
	}
	require.Less(t, time.Since(executed), 20*delay, "100 replies travel side by side")
}

func TestEndingTheDelayFreesRepliesOnTheirWay(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Delay(time.Hour)
	c := dial(t, n.Addr())
	c.send("PING")
	require.NoError(t, n.WaitRequests(testContext(t), "PING", 1))
	c.requireSilence()
	n.Delay(0)
	require.Equal(t, "+PONG", c.line())
}

func TestCutBreaksConnectionsAndAllowsNewOnes(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	n.Cut()
	c.requireCut()
	fresh := dial(t, n.Addr())
	fresh.send("PING")
	require.Equal(t, "+PONG", fresh.line())
}

func TestABlackHoleExecutesNothingEver(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	idle, used := dial(t, n.Addr()), dial(t, n.Addr())
	for _, c := range []*wire{idle, used} {
		c.send("PING")
		require.Equal(t, "+PONG", c.line())
	}
	n.BlackHole(true)
	fresh := dial(t, n.Addr())
	fresh.send("SET a 1")
	used.send("SET b 2")
	fresh.requireSilence()
	used.requireSilence()
	n.BlackHole(false)
	fresh.requireCut()
	used.requireCut()
	idle.send("PING")
	require.Equal(t, "+PONG", idle.line(), "nothing of it was lost")
	require.NoError(t, n.Client().Ping(ctx).Err())
	require.Empty(t, n.Keys())
}

func TestADroppedReplyIsExecutedAndCut(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	n.DropReplies(1, "set")
	c.send("PING", "SET a 1", "SET b 2")
	require.Equal(t, "+PONG", c.line(), "replies before it arrive")
	c.requireCut()
	require.NoError(t, n.WaitRequests(testContext(t), "SET", 2))
	require.Equal(t, []string{"a", "b"}, n.Keys(), "requests behind it are executed")
	again := dial(t, n.Addr())
	again.send("SET a 1")
	require.Equal(t, "+OK", again.line(), "only one was asked for")
}

func TestASwallowedReplyIsExecutedAndSilent(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	n.SwallowReplies(1, "SET")
	c.send("PING", "SET a 1")
	require.Equal(t, "+PONG", c.line())
	require.NoError(t, n.WaitRequests(testContext(t), "SET", 1))
	c.requireSilence()
	c.send("SET b 2")
	require.NoError(t, n.WaitRequests(testContext(t), "SET", 2))
	c.requireSilence()
	require.Equal(t, []string{"a", "b"}, n.Keys())
	require.Equal(t, 1, n.Connections(), "it stays open")
}

func TestDroppedRepliesSpareTheSetUpOfConnections(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.DropReplies(2)
	c := bare(t, n.Addr(), func(o *redis.Options) { o.MaxRetries = 2; o.MinRetryBackoff = -1 })
	require.NoError(t, c.Incr(ctx, "n").Err(), "cut twice, then answered")
	got, _ := n.Get("n")
	require.Equal(t, "3", got, "executed each time")
	n.DropReplies(5)
	n.DropReplies(0)
	require.NoError(t, bare(t, n.Addr()).Incr(ctx, "n").Err())
}

func TestAReaderThatNeverReadsIsCut(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Set("big", string(make([]byte, 1<<20)), 0)
	c := dial(t, n.Addr())
	for range 100 {
		if _, err := c.Write([]byte("*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n")); err != nil {
			break
		}
	}
	eventually(t, func() bool { return n.Connections() == 0 }, "cut, as Redis does at its output buffer limit")
	require.NoError(t, n.Client().Ping(testContext(t)).Err(), "others are served")
}

func TestConnectionsAreBounded(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Freeze()
	for range maxConnections {
		dial(t, n.Addr())
	}
	eventually(t, func() bool { return n.Connections() == maxConnections }, "all are taken")
	dial(t, n.Addr()).requireCut()
}

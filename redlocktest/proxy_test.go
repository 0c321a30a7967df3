package redlocktest

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startProxy starts a node, which plays the real server, and a proxy before it.
func startProxy(t *testing.T) (*Proxy, *Node) {
	n := Start(t, 1).Node(0)
	p, err := NewProxy(n.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p, n
}

func TestTheProxyPassesEverythingOn(t *testing.T) {
	ctx := testContext(t)
	p, n := startProxy(t)
	c := bare(t, p.Addr())
	big := string(make([]byte, 3<<20))
	require.NoError(t, c.Set(ctx, "big", big, 0).Err())
	require.Equal(t, big, c.Get(ctx, "big").Val())
	require.Equal(t, []string{"big"}, n.Keys())
}

func TestTheProxyFreezes(t *testing.T) {
	ctx := testContext(t)
	p, n := startProxy(t)
	p.Freeze()
	c := dial(t, p.Addr())
	c.send("SET k v", "SET l v")
	eventually(t, func() bool { return p.Pending() > 0 }, "bytes arrive")
	require.NoError(t, c.Close())
	open := dial(t, p.Addr())
	open.send("PING")
	open.requireSilence()
	p.Thaw()
	require.Equal(t, "+PONG", open.line())
	require.NoError(t, n.WaitRequests(ctx, "SET", 2))
	require.Equal(t, []string{"k", "l"}, n.Keys())
}

func TestTheProxyDropsAndSwallowsReplies(t *testing.T) {
	ctx := testContext(t)
	p, n := startProxy(t)
	p.DropReplies(1)
	c := dial(t, p.Addr())
	c.send("SET a 1")
	c.requireCut()
	require.NoError(t, n.WaitRequests(ctx, "SET", 1))
	p.SwallowReplies(1)
	c = dial(t, p.Addr())
	c.send("SET b 2")
	require.NoError(t, n.WaitRequests(ctx, "SET", 2))
	c.requireSilence()
	require.NoError(t, bare(t, p.Addr()).Ping(ctx).Err())
}

func TestTheProxyDelaysHolesAndCuts(t *testing.T) {
	p, n := startProxy(t)
	c := dial(t, p.Addr())
	p.Delay(30 * time.Millisecond)
	start := time.Now()
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	require.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond)
	p.Delay(0)
	p.BlackHole(true)
	c.send("SET k v")
	c.requireSilence()
	p.BlackHole(false)
	c.requireCut()
	require.Empty(t, n.Keys())
	c = dial(t, p.Addr())
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	p.Cut()
	c.requireCut()
}

func TestTheProxyRefuses(t *testing.T) {
	p, _ := startProxy(t)
	require.NoError(t, p.Refuse(true))
	_, err := net.Dial("tcp", p.Addr())
	require.True(t, errors.Is(err, syscall.ECONNREFUSED), "got %v", err)
	require.NoError(t, p.Refuse(false))
	require.NoError(t, p.Refuse(false), "twice")
	require.NoError(t, bare(t, p.Addr()).Ping(testContext(t)).Err())
}

func TestADeadTargetBreaksTheConnection(t *testing.T) {
	p, n := startProxy(t)
	used := dial(t, p.Addr())
	used.send("PING")
	require.Equal(t, "+PONG", used.line())
	n.Stop()
	used.requireCut()
	fresh := dial(t, p.Addr())
	fresh.send("PING")
	fresh.requireCut()
	require.NoError(t, n.Restart())
	require.NoError(t, bare(t, p.Addr(), func(o *redis.Options) { o.MaxRetries = 3 }).Ping(testContext(t)).Err())
}

func TestAClosedProxyLeavesNoGoroutine(t *testing.T) {
	p, n := startProxy(t)
	n.Freeze()
	c := dial(t, p.Addr())
	c.send("PING")
	eventually(t, func() bool { return n.Pending() > 0 }, "the target has it and is silent")
	p.Freeze()
	dial(t, p.Addr()).send("PING")
	eventually(t, func() bool { return p.Pending() > 0 }, "the proxy has it")
	require.NoError(t, p.Close())
	c.requireCut()
	require.NoError(t, p.Close(), "twice")
	require.Error(t, p.Refuse(false))
	n.Stop()
	require.NoError(t, n.proxy.Close())
	requireNoGoroutines(t)
}

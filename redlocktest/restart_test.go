package redlocktest

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestAStoppedNodeRefusesAndForgets(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Set("k", "v", 0)
	c := dial(t, n.Addr())
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	n.Stop()
	c.requireCut()
	_, err := net.Dial("tcp", n.Addr())
	require.True(t, errors.Is(err, syscall.ECONNREFUSED), "got %v", err)
	require.Nil(t, n.Keys())
	require.Empty(t, n.RunID())
	n.Stop()
}

func TestARestartedNodeIsEmptyAndAnotherOne(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := bare(t, n.Addr())
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	sha, err := c.ScriptLoad(ctx, "return 1").Result()
	require.NoError(t, err)
	require.NoError(t, c.FlushAll(ctx).Err())
	require.Equal(t, []bool{true}, c.ScriptExists(ctx, sha).Val(), "scripts survive FLUSHALL")
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	id := c.InfoMap(ctx, "server").Item("Server", "run_id")
	require.Regexp(t, `^[0-9a-f]{40}$`, id)
	require.Equal(t, n.RunID(), id)
	addr := n.Addr()

	for range 5 {
		require.NoError(t, n.Restart())
		require.Equal(t, addr, n.Addr())
		require.Empty(t, n.Keys())
		fresh := bare(t, addr)
		info := fresh.InfoMap(ctx, "server")
		require.NotEqual(t, id, info.Item("Server", "run_id"))
		require.Equal(t, "0", info.Item("Server", "uptime_in_seconds"))
		require.Equal(t, []bool{false}, fresh.ScriptExists(ctx, sha).Val())
		id = info.Item("Server", "run_id")
	}
}

func TestAClientFindsTheRestartedNode(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := bare(t, n.Addr(), func(o *redis.Options) { o.MaxRetries = 3 })
	require.NoError(t, c.Ping(ctx).Err())
	n.Stop()
	require.Error(t, bare(t, n.Addr()).Ping(ctx).Err())
	require.NoError(t, n.Restart())
	require.NoError(t, c.Ping(ctx).Err())
}

func TestUptimeFollowsTheClockAsOnARealServer(t *testing.T) {
	n := Start(t, 1).Node(0)
	require.NoError(t, n.Restart())
	n.StepClock(1e9 * 3600)
	require.Contains(t, n.Client().InfoMap(testContext(t), "server").Item("Server", "uptime_in_seconds"), "360")
}

func TestThePasswordAndTheFaultsOutliveARestart(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.RequirePassword("pw")
	n.Fail(OOM, "SET")
	require.NoError(t, n.Restart())
	c := bare(t, n.Addr(), func(o *redis.Options) { o.Password = "pw" })
	require.EqualError(t, c.Set(ctx, "k", "v", 0).Err(), OOM)
	require.ErrorContains(t, bare(t, n.Addr()).Ping(ctx).Err(), "NOAUTH")
}

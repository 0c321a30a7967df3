package redlocktest

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestARestartWithDataKeepsAllButTheRun(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := bare(t, n.Addr(), func(o *redis.Options) { o.MaxRetries = 3 })
	require.NoError(t, c.Set(ctx, "string", "v", 0).Err())
	require.NoError(t, c.Set(ctx, "short", "v", time.Hour).Err())
	require.NoError(t, c.HSet(ctx, "hash", "f", "1", "g", "2").Err())
	require.NoError(t, c.RPush(ctx, "list", "a", "b").Err())
	require.NoError(t, c.SAdd(ctx, "set", "a", "b").Err())
	require.NoError(t, c.ZAdd(ctx, "zset", redis.Z{Score: 2, Member: "a"}, redis.Z{Score: 1, Member: "b"}).Err())
	other := bare(t, n.Addr(), func(o *redis.Options) { o.DB = 3 })
	require.NoError(t, other.Set(ctx, "elsewhere", "v", 0).Err())
	sha, err := c.ScriptLoad(ctx, "return 1").Result()
	require.NoError(t, err)
	run := n.RunID()

	require.NoError(t, n.RestartWithData())
	require.NotEqual(t, run, n.RunID())
	require.Equal(t, []string{"hash", "list", "set", "short", "string", "zset"}, n.Keys())
	require.Equal(t, map[string]string{"f": "1", "g": "2"}, c.HGetAll(ctx, "hash").Val())
	require.Equal(t, []string{"a", "b"}, c.LRange(ctx, "list", 0, -1).Val())
	require.Equal(t, []string{"a", "b"}, c.SMembers(ctx, "set").Val())
	require.Equal(t, []string{"b", "a"}, c.ZRange(ctx, "zset", 0, -1).Val())
	require.Equal(t, "v", bare(t, n.Addr(), func(o *redis.Options) { o.DB = 3 }).Get(ctx, "elsewhere").Val())
	require.Equal(t, NoExpiry, n.TTL("string"))
	require.InDelta(t, time.Hour, n.TTL("short"), float64(time.Minute))
	require.Equal(t, []bool{false}, c.ScriptExists(ctx, sha).Val())
	require.Equal(t, "0", c.InfoMap(ctx, "server").Item("Server", "uptime_in_seconds"))
}

func TestAnOldSnapshotBringsBackWhatWasThereThen(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Set("released", "token", 0)
	n.Set("short", "token", time.Hour)
	s, err := n.Snapshot()
	require.NoError(t, err)
	n.Del("released")
	n.Set("held", "token", 0)
	n.StepClock(59 * time.Minute)
	require.NoError(t, n.RestartFrom(s))
	require.Equal(t, []string{"released", "short"}, n.Keys())
	require.InDelta(t, time.Minute, n.TTL("short"), float64(10*time.Second), "it expires at an instant, not after a while")
	n.StepClock(time.Minute)
	require.NoError(t, n.RestartFrom(s))
	require.Equal(t, []string{"released"}, n.Keys())
}

func TestARestartWithDataLosesNothingThatWasAnswered(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	var answered sync.Map
	over := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 8 {
		c := bare(t, n.Addr())
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				key := itoa(w) + "/" + itoa(i%50) // few keys: a node takes time for each
				if value, err := c.Incr(ctx, key).Result(); err == nil {
					answered.Store(key, value)
				}
			}
		})
	}
	var err error
	for range 30 {
		seen := n.Requests("INCR")
		if err = errors.Join(n.WaitRequests(ctx, "INCR", seen+20), n.RestartWithData()); err != nil {
			break
		}
	}
	close(over)
	writers.Wait()
	require.NoError(t, err)
	for key, value := range answered.Range {
		kept, _ := n.Get(key.(string))
		number, err := strconv.ParseInt(kept, 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, number, value.(int64), key)
	}
}

// A time to live of nothing would be none at all.
func TestAKeyThatExpiresAtTheRestartIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := pipeNode(t, "10.0.0.1:6379")
		n.Set("k", "v", time.Minute)
		s, err := n.Snapshot()
		require.NoError(t, err)
		n.FlushAll()
		time.Sleep(time.Minute)
		n.engine.Load().with(func(m miniDB) { require.NoError(t, s.load(m, n.clock.now())) })
		require.Empty(t, n.Keys())
	})
}

func TestAStreamIsInNoSnapshot(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	require.NoError(t, n.Client().XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"a", "b"}}).Err())
	require.ErrorContains(t, n.RestartWithData(), `"s", a stream`)
	require.NoError(t, n.Client().Ping(ctx).Err(), "and the node goes on")
	require.Equal(t, []string{"s"}, n.Keys())
}

func TestAStoppedNodeHasNoDataToKeep(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Set("k", "v", 0)
	s, err := n.Snapshot()
	require.NoError(t, err)
	n.Stop()
	require.ErrorContains(t, n.RestartWithData(), "take a Snapshot before Stop")
	require.Error(t, n.Client().Ping(testContext(t)).Err(), "it is still stopped")
	require.NoError(t, n.RestartFrom(s))
	require.Equal(t, []string{"k"}, n.Keys())
}

func TestAClockRunsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, client := pipeNode(t, "10.0.0.1:6379")
		begin := time.Now()
		n.StepClock(time.Hour)
		n.ClockRate(0.25)
		n.Set("k", "v", 10*time.Second)
		time.Sleep(7999 * time.Millisecond)
		require.Equal(t, 1250*time.Microsecond, n.TTL("k"))
		time.Sleep(time.Millisecond)
		require.Equal(t, NoKey, n.TTL("k"))
		server, err := client.Time(t.Context()).Result()
		require.NoError(t, err)
		require.Equal(t, time.Hour+10*time.Second, server.Sub(begin))
		n.ClockRate(0)
		time.Sleep(time.Second)
		require.Equal(t, time.Hour+11*time.Second, n.Now().Sub(begin), "it keeps what it gained")
		n.ClockRate(-0.5)
		time.Sleep(2 * time.Second)
		require.Equal(t, time.Hour+12*time.Second, n.Now().Sub(begin))
		n.ClockRate(-5)
		time.Sleep(time.Second)
		require.Equal(t, time.Hour+12*time.Second+time.Millisecond, n.Now().Sub(begin), "it never goes back")
	})
}

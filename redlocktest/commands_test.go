package redlocktest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// eachProtocol runs a test with a RESP2 and a RESP3 client of a fresh node.
func eachProtocol(t *testing.T, f func(t *testing.T, n *Node, c *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run("RESP"+itoa(protocol), func(t *testing.T) {
			n := Start(t, 1).Node(0)
			f(t, n, bare(t, n.Addr(), func(o *redis.Options) { o.Protocol = protocol }))
		})
	}
}

func TestInfoSaysWhatALockMustKnow(t *testing.T) {
	eachProtocol(t, func(t *testing.T, n *Node, c *redis.Client) {
		ctx := testContext(t)
		want := map[string]map[string]string{
			"Server":      {"redis_version": redisVersion, "run_id": n.RunID(), "tcp_port": n.Addr()[len("127.0.0.1:"):], "uptime_in_seconds": "86400"},
			"Memory":      {"maxmemory": "0", "maxmemory_policy": "noeviction"},
			"Replication": {"role": "master"},
			"Cluster":     {"cluster_enabled": "0"},
		}
		for _, args := range [][]string{nil, {"all"}, {"server", "memory", "replication", "cluster"}} {
			info := c.InfoMap(ctx, args...)
			for section, fields := range want {
				for field, value := range fields {
					require.Equal(t, value, info.Item(section, field), "%v %s", args, field)
				}
			}
		}
		require.NotContains(t, c.Info(ctx, "memory").Val(), "run_id")
		require.Contains(t, c.Eval(ctx, "return redis.call('INFO', 'server')", nil).Val(), n.RunID())
		n.SetInfo("maxmemory_policy", "volatile-lru")
		require.Equal(t, "volatile-lru", c.InfoMap(ctx).Item("Memory", "maxmemory_policy"))
	})
}

func TestScriptsWork(t *testing.T) {
	eachProtocol(t, func(t *testing.T, n *Node, c *redis.Client) {
		ctx := testContext(t)
		script := redis.NewScript("return {redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 1000), 7}")
		require.True(t, redis.HasErrorPrefix(c.EvalSha(ctx, script.Hash(), []string{"k"}, "v").Err(), "NOSCRIPT"))
		sha, err := c.ScriptLoad(ctx, "return {redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 1000), 7}").Result()
		require.NoError(t, err)
		require.Equal(t, script.Hash(), sha)
		require.Equal(t, []bool{true, false}, c.ScriptExists(ctx, sha, "0000").Val())
		got, err := c.EvalSha(ctx, sha, []string{"k"}, "v").Result()
		require.NoError(t, err)
		require.Equal(t, []any{"OK", int64(7)}, got)
		got, err = c.EvalSha(ctx, sha, []string{"k"}, "other").Result()
		require.NoError(t, err)
		require.Equal(t, []any{nil, int64(7)}, got)
		require.NoError(t, c.ScriptFlush(ctx).Err())
		require.Equal(t, []bool{false}, c.ScriptExists(ctx, sha).Val())
	})
}

func TestScriptErrorsBeginWithTheirCode(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.Set("s", "text", 0)
	c := n.Client()
	// Word for word what Redis 7.0 says.
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value script: 8966021fc57066a5d6a63c496cc9fa1ae82fc7f0, on @user_script:2."
	script := redis.NewScript("\nreturn redis.call('HGET', KEYS[1], 'f')")
	err := script.Eval(ctx, c, []string{"s"}).Err()
	require.EqualError(t, err, wrongType)
	require.NoError(t, script.Load(ctx, c).Err())
	err = script.EvalSha(ctx, c, []string{"s"}).Err()
	require.EqualError(t, err, wrongType)
	err = c.Eval(ctx, "error('no luck')", nil).Err()
	require.EqualError(t, err, "ERR user_script:1: no luck script: 65df2800bf28f04ab5a1c5a403f3f1a54eec1722, on @user_script:1.")
	err = c.Eval(ctx, "return redis.error_reply('MYCODE text')", nil).Err()
	require.EqualError(t, err, "MYCODE text")
	err = c.Eval(ctx, "not lua", nil).Err()
	require.ErrorContains(t, err, "ERR Error compiling script")
	got, err := c.Eval(ctx, "return redis.pcall('HGET', KEYS[1], 'f')['err']", []string{"s"}).Result()
	require.NoError(t, err)
	require.Equal(t, "WRONGTYPE Operation against a key holding the wrong kind of value", got)
}

func TestTransactionsWork(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := n.Client()
	const witness = "return 'witness'"
	sha := redis.NewScript(witness).Hash()
	cmds, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ScriptExists(ctx, sha)
		p.ScriptLoad(ctx, witness)
		p.Eval(ctx, "return redis.call('INCR', KEYS[1])", []string{"n"})
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, cmds[0].(*redis.BoolSliceCmd).Val())
	require.Equal(t, sha, cmds[1].(*redis.StringCmd).Val())
	require.Equal(t, int64(1), cmds[2].(*redis.Cmd).Val())

	// A refused command refuses the whole transaction, and the connection goes on.
	n.Fail(OOM, "SET")
	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "n")
		p.Set(ctx, "k", "v", 0)
		return nil
	})
	require.Error(t, err)
	got, _ := n.Get("n")
	require.Equal(t, "1", got)
	require.NoError(t, c.Incr(ctx, "n").Err())
}

func TestPublishReachesSubscribers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, n *Node, c *redis.Client) {
		ctx := testContext(t)
		sub := c.Subscribe(ctx, "news")
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		heard, err := c.Eval(ctx, "return redis.call('PUBLISH', 'news', 'hello')", nil).Int()
		require.NoError(t, err)
		require.Equal(t, 1, heard)
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(t, err)
		require.Equal(t, "hello", m.Payload)
	})
}

func TestASubscriberThatIsCutHearsNothingMore(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	c.send("SUBSCRIBE news")
	for range 6 { // *3 $9 subscribe $4 news :1
		c.line()
	}
	n.Cut()
	c.requireCut()
	eventually(t, func() bool { return n.Client().Publish(ctx, "news", "x").Val() == 0 }, "unsubscribed")
}

func TestAPasswordIsAskedFor(t *testing.T) {
	eachProtocol(t, func(t *testing.T, n *Node, open *redis.Client) {
		ctx := testContext(t)
		n.RequirePassword("right")
		protocol := open.Options().Protocol
		with := func(pw string) *redis.Client {
			return bare(t, n.Addr(), func(o *redis.Options) { o.Protocol, o.Password = protocol, pw })
		}
		for name, ask := range map[string]func(*redis.Client) error{
			"INFO": func(c *redis.Client) error { return c.Info(ctx).Err() },
			"SET":  func(c *redis.Client) error { return c.Set(ctx, "k", "v", 0).Err() },
			"EVAL": func(c *redis.Client) error { return c.Eval(ctx, "return redis.call('SET', 'k', 'v')", nil).Err() },
		} {
			require.ErrorContains(t, ask(open), "NOAUTH", name)
			require.ErrorContains(t, ask(with("wrong")), "WRONGPASS", name)
			require.NoError(t, ask(with("right")), name)
		}
		n.RequirePassword("")
		require.NoError(t, with("").Ping(ctx).Err())
	})
}

func TestHelloNeedsThePassword(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.RequirePassword("pw")
	c := dial(t, n.Addr())
	c.send("HELLO 3", "AUTH pw", "CLIENT SETINFO LIB-NAME x", "CLIENT ID")
	require.Contains(t, c.line(), "-NOAUTH HELLO")
	require.Equal(t, "+OK", c.line())
	require.Equal(t, "+OK", c.line())
	require.Regexp(t, `^:\d+$`, c.line())
}

func TestFailAnswersTheErrorUntilItIsEnded(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := n.Client()
	sha := c.ScriptLoad(ctx, "redis.call('SET', KEYS[1], 'v') return redis.call('INCR', KEYS[2])").Val()
	run := func() error { return c.EvalSha(ctx, sha, []string{"a", "n"}).Err() }

	n.Fail(READONLY, "evalsha")
	require.EqualError(t, run(), READONLY)
	require.Empty(t, n.Keys(), "refused as a whole")
	require.NoError(t, c.Ping(ctx).Err(), "others work")
	n.Fail("", "EVALSHA")
	require.NoError(t, run())

	n.FlushAll()
	n.Fail(OOM, "INCR")
	err := run()
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "got %v", err)
	require.Equal(t, []string{"a"}, n.Keys(), "failed half way")
	n.Fail("")

	for _, reply := range []string{OOM, MISCONF, READONLY, LOADING, BUSY, NOPERM} {
		n.Fail(reply)
		fresh := bare(t, n.Addr())
		require.EqualError(t, fresh.Ping(ctx).Err(), reply)
		require.EqualError(t, fresh.Info(ctx).Err(), reply)
	}
	n.Fail("")
	require.NoError(t, run())
}

func TestRequestsAreCountedByCommand(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := n.Client()
	require.NoError(t, c.Ping(ctx).Err())
	before := n.Requests("")
	for range 3 {
		require.ErrorIs(t, c.Eval(ctx, "return redis.call('GET', 'k')", nil).Err(), redis.Nil)
	}
	_ = c.Get(ctx, "k")
	require.EqualValues(t, 3, n.Requests("eval"))
	require.EqualValues(t, 1, n.Requests("GET"), "not those inside scripts")
	require.EqualValues(t, before+4, n.Requests(""))
	require.NoError(t, n.Restart())
	require.EqualValues(t, 3, n.Requests("EVAL"), "kept over a restart")

	short, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	require.ErrorContains(t, n.WaitRequests(short, "EVAL", 4), "3 of 4")
}

func TestDataAccessWorksWhateverIsBroken(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.BlackHole(true)
	n.Freeze()
	n.Fail(OOM)
	n.RequirePassword("pw")
	n.Set("b", "1", 0)
	n.Set("a", "2", time.Minute)
	require.Equal(t, []string{"a", "b"}, n.Keys())
	got, ok := n.Get("a")
	require.True(t, ok)
	require.Equal(t, "2", got)
	_, ok = n.Get("none")
	require.False(t, ok)
	require.InDelta(t, time.Minute, n.TTL("a"), float64(30*time.Second))
	require.Equal(t, NoExpiry, n.TTL("b"))
	require.True(t, n.Del("a"))
	require.False(t, n.Del("a"))
	n.Set("b", "1", time.Minute)
	n.Set("b", "1", 0)
	require.Equal(t, NoExpiry, n.TTL("b"))
	n.FlushAll()
	require.Empty(t, n.Keys())
}

func TestHashFieldsCanBeRead(t *testing.T) {
	n := Start(t, 1).Node(0)
	require.NoError(t, n.Client().HSet(testContext(t), "h", "f", "v", "empty", "").Err())
	n.Set("s", "v", 0)
	for _, row := range []struct {
		key, field, want string
		ok               bool
	}{{"h", "f", "v", true}, {"h", "empty", "", true}, {"h", "none", "", false}, {"none", "f", "", false}, {"s", "f", "", false}} {
		got, ok := n.HGet(row.key, row.field)
		require.Equal(t, row.ok, ok, row)
		require.Equal(t, row.want, got, row)
	}
	_, ok := n.Get("h")
	require.False(t, ok, "not a string")
}

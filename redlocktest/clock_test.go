package redlocktest

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestKeysExpireByTheRealClock(t *testing.T) {
	ctx := testContext(t)
	const ttl = 40 * time.Millisecond
	for name, set := range map[string]func(c *redis.Client) error{
		"SET PX": func(c *redis.Client) error { return c.Set(ctx, "k", "v", ttl).Err() },
		"PEXPIRE": func(c *redis.Client) error {
			return firstError(c.Set(ctx, "k", "v", 0).Err(), c.PExpire(ctx, "k", ttl).Err())
		},
		"SET PXAT": func(c *redis.Client) error {
			at := strconv.FormatInt(time.Now().Add(ttl+time.Millisecond).UnixMilli(), 10)
			return c.Do(ctx, "SET", "k", "v", "PXAT", at).Err()
		},
		"in a script": func(c *redis.Client) error {
			return c.Eval(ctx, "return redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1])", []string{"k"}, ttl.Milliseconds()).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := Start(t, 1).Node(0).Client()
			require.NoError(t, c.Ping(ctx).Err())
			before := time.Now()
			require.NoError(t, set(c))
			after := time.Now()
			for {
				asked := time.Now()
				pttl, err := c.PTTL(ctx, "k").Result()
				answered := time.Now()
				require.NoError(t, err)
				if pttl < 0 {
					require.GreaterOrEqual(t, answered.Sub(before), ttl, "never early")
					return
				}
				require.LessOrEqual(t, asked.Sub(after), ttl+time.Millisecond, "never late")
				require.LessOrEqual(t, pttl, ttl+time.Millisecond-asked.Sub(after)+time.Millisecond)
				require.GreaterOrEqual(t, pttl, ttl-answered.Sub(before)-time.Millisecond)
			}
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestExpiryIsSeenPastTheFaults(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Set("k", "v", 20*time.Millisecond)
	require.Positive(t, n.TTL("k"))
	n.Freeze()
	eventually(t, func() bool { _, ok := n.Get("k"); return !ok }, "expired in the freeze")
	require.Equal(t, NoKey, n.TTL("k"))
	require.Empty(t, n.Keys())
}

func TestTimeIsReal(t *testing.T) {
	ctx := testContext(t)
	c := Start(t, 1).Node(0).Client()
	script := "local t = redis.call('TIME'); return {t[1], t[2]}"
	for name, ask := range map[string]func() (time.Time, error){
		"TIME":        func() (time.Time, error) { return c.Time(ctx).Result() },
		"in a script": func() (time.Time, error) { return scriptTime(c.Eval(ctx, script, nil)) },
	} {
		before := time.Now().Truncate(time.Microsecond)
		got, err := ask()
		require.NoError(t, err, name)
		require.False(t, got.Before(before), name)
		require.False(t, got.After(time.Now()), name)
	}
}

func scriptTime(cmd *redis.Cmd) (time.Time, error) {
	parts, err := cmd.StringSlice()
	if err != nil {
		return time.Time{}, err
	}
	sec, _ := strconv.ParseInt(parts[0], 10, 64)
	usec, _ := strconv.ParseInt(parts[1], 10, 64)
	return time.Unix(sec, usec*1000), nil
}

func TestTimeStandsStillInsideAScript(t *testing.T) {
	c := Start(t, 1).Node(0).Client()
	same := `local a = redis.call('TIME')
		for i = 1, 1000 do redis.call('GET', 'k') end
		local b = redis.call('TIME')
		return a[1] == b[1] and a[2] == b[2]`
	require.NoError(t, c.Eval(testContext(t), same, nil).Err(), "false would be nil")
}

func TestAStepForwardExpiresKeysAndMovesTime(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.Set("short", "v", time.Minute)
	n.Set("long", "v", 2*time.Hour)
	n.StepClock(time.Hour)
	require.Equal(t, []string{"long"}, n.Keys())
	require.InDelta(t, time.Hour, n.TTL("long"), float64(time.Minute))
	now, err := n.Client().Time(ctx).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Hour, time.Until(now), float64(time.Minute))
	require.NoError(t, n.Restart())
	require.InDelta(t, time.Hour, time.Until(n.Now()), float64(time.Minute), "the clock is the machine's, not the process's")
	require.Equal(t, "0", n.Client().InfoMap(ctx, "server").Item("Server", "uptime_in_seconds"))
}

func TestAStepBackLengthensLives(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.Set("k", "v", time.Minute)
	n.Set("forever", "v", 0)
	n.StepClock(-time.Hour)
	require.InDelta(t, time.Hour+time.Minute, n.TTL("k"), float64(30*time.Second))
	require.Equal(t, NoExpiry, n.TTL("forever"))
	// What is set after the step lives as long as it says.
	require.NoError(t, n.Client().Set(ctx, "k", "v", 20*time.Millisecond).Err())
	eventually(t, func() bool { _, ok := n.Get("k"); return !ok }, "expired")
}

func TestAStepOfAStoppedNodeIsKept(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Stop()
	n.StepClock(time.Hour)
	require.NoError(t, n.Restart())
	now, err := n.Client().Time(testContext(t)).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Hour, time.Until(now), float64(time.Minute))
}

package nemesis

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// askAll lets every server run a script all the time, until stop is called.
func askAll(t *testing.T, w World) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(bg)
	var asking sync.WaitGroup // ends with ctx
	script := redis.NewScript(`return 1`)
	for _, s := range w.Servers {
		require.NoError(t, script.Load(bg, s.Client()).Err())
		asking.Go(func() {
			for ctx.Err() == nil {
				_ = script.EvalSha(ctx, s.Client(), nil).Err()
				pause(ctx, time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		asking.Wait()
	}
}

func TestRequestsComeTwice(t *testing.T) {
	w := realWorld(t, processes(t))
	server := w.Servers[0].Client()
	add := redis.NewScript(`return redis.call('INCRBY', KEYS[1], ARGV[1])`)
	require.NoError(t, add.Load(bg, server).Err())
	sent, repeated := 0, int64(0)
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		defer close(done)
		require.NoError(t, New(w, func(s Step, _ Phase, err error) {
			require.NoError(t, err)
			repeated = s.Repeated
		}).Run(bg, now(Step{Kind: "replay", Nodes: []int{0}})))
	})
	for over := false; !over; {
		require.NoError(t, add.EvalSha(bg, server, []string{"a \"key\"\n\x00"}, 1).Err())
		sent++
		select {
		case <-done:
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	running.Wait()
	n, err := server.Get(bg, "a \"key\"\n\x00").Int()
	require.NoError(t, err)
	require.Greater(t, n, sent+10)
	require.LessOrEqual(t, n, 2*sent)
	require.EqualValues(t, n-sent, repeated)
}

func TestAReplayThatHeardNothingWasNotDone(t *testing.T) {
	w := World{Servers: []*servers.Server{servers.Start(t, 1, servers.WithProvider(processes(t))).Server(0)}, Keeps: make([]Keeps, 5)}
	var failed error
	require.NoError(t, New(w, func(_ Step, what Phase, err error) {
		if what == Failed {
			failed = err
		}
	}).Run(bg, now(Step{Kind: "replay", Nodes: []int{0}})))
	require.ErrorIs(t, failed, errHeardNothing)
}

func TestWhatScriptsDoIsNobodysRequest(t *testing.T) {
	require.Equal(t, []any{"evalsha", "ab\"c", "1"}, heard(`+1700000000.123456 [0 127.0.0.1:4711] "evalsha" "ab\"c" "1"`+"\r\n"))
	require.Empty(t, heard(`+1700000000.123456 [0 lua] "evalsha" "x"`+"\r\n"))
	require.Empty(t, heard("+OK\r\n"))
}

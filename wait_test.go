package redlock

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

func TestPausesGrowToTheirLimit(t *testing.T) {
	w := waiter{retry: retry{20 * time.Millisecond, time.Second}}
	var longest [8]time.Duration
	for range 2000 {
		w.limit = 0
		for i := range longest {
			d := w.pause(&QuorumError{})
			require.GreaterOrEqual(t, d, time.Duration(0))
			longest[i] = max(longest[i], d)
		}
	}
	limit := 20 * time.Millisecond
	for i, d := range longest {
		require.LessOrEqual(t, d, limit, "round %d", i)
		require.Greater(t, d, limit*9/10, "round %d: the whole range is used", i)
		limit = min(limit*2, time.Second)
	}
}

func TestAPauseEndsWhenTheHoldersKeysRunOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for i, x := range ps { // three of five have to run out, the third does after 300 ms
			x.Keys["lock:a"] = model.Value{S: "dead holder's", Expires: time.Now().Add(time.Duration(i+1) * 100 * time.Millisecond)}
		}
		p := testPool(t, ps)
		start := time.Now()
		_, err := p.Lock(bg, "a", WithRetry(time.Hour, time.Hour))
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
		require.Less(t, time.Since(start), 700*time.Millisecond)
	})
}

func TestACtxThatEndsInARoundKeepsTheReasonOfTheOneBefore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p, rival := testPool(t, ps), testPool(t, ps)
		mustLock(t, p)
		warmOthers(t, rival)
		for _, x := range ps {
			x.do(func() { x.delay = 10 * time.Millisecond })
		}
		for i := range 20 {
			ctx, cancel := context.WithTimeout(bg, time.Duration(40+i)*time.Millisecond)
			_, err := rival.Lock(ctx, "a", WithRetry(time.Microsecond, time.Microsecond))
			require.ErrorIs(t, err, ErrHeld)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		time.Sleep(time.Second)
	})
}

func TestADialerThatPanicsIsAFailedNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
			panic("a bug of the user's")
		}})
		defer c.Close()
		p, err := New([]*redis.Client{c})
		require.NoError(t, err)
		defer p.Close()
		_, err = p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "a bug of the user's")
	})
}

package redlocktest

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bubble runs f in virtual time with a node and a way to connect to it.
func bubble(t *testing.T, f func(t *testing.T, n *Node, dial func() *wire)) {
	synctest.Test(t, func(t *testing.T) {
		n, client := pipeNode(t, "10.0.0.1:6379")
		f(t, n, func() *wire {
			conn, err := client.Options().Dialer(t.Context(), "", "")
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return newWire(t, conn)
		})
	})
}

func TestJitterIsRandomAndRepeatable(t *testing.T) {
	const longest = time.Second
	run := func(seed uint64) (times []time.Duration) {
		bubble(t, func(t *testing.T, n *Node, dial func() *wire) {
			n.Delay(time.Second)
			n.Jitter(longest, seed)
			c := dial()
			for range 50 {
				begin := time.Now()
				c.send("PING")
				require.Equal(t, "+PONG", c.line())
				times = append(times, time.Since(begin))
			}
			n.Jitter(0, 0)
			begin := time.Now()
			c.send("PING")
			require.Equal(t, "+PONG", c.line())
			require.Equal(t, time.Second, time.Since(begin))
		})
		return times
	}
	first := run(7)
	for _, d := range first {
		require.GreaterOrEqual(t, d, time.Second)
		require.Less(t, d, time.Second+longest)
	}
	require.Less(t, slices.Min(first), 1200*time.Millisecond)
	require.Greater(t, slices.Max(first), 1800*time.Millisecond)
	require.Equal(t, first, run(7))
	require.NotEqual(t, first, run(8))
}

func TestJitterKeepsTheOrderOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *Node, dial func() *wire) {
		n.Jitter(time.Second, 1)
		c := dial()
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range 50 {
				c.send("ECHO " + itoa(i))
			}
		})
		begin := time.Now()
		for i := range 50 {
			require.Equal(t, "$"+itoa(len(itoa(i))), c.line())
			require.Equal(t, itoa(i), c.line())
		}
		require.Less(t, time.Since(begin), time.Second, "side by side")
		sending.Wait()
	})
}

func TestABlackHoleForRequestsLetsRepliesThrough(t *testing.T) {
	n := Start(t, 1).Node(0)
	idle, used := dial(t, n.Addr()), dial(t, n.Addr())
	for _, c := range []*wire{idle, used} {
		c.send("PING")
		require.Equal(t, "+PONG", c.line())
	}
	n.Delay(time.Hour)
	seen := n.Requests("PING")
	used.send("PING")
	require.NoError(t, n.WaitRequests(testContext(t), "PING", seen+1))
	n.BlackHoleRequests(true)
	n.Delay(0)
	require.Equal(t, "+PONG", used.line(), "what was on its way back arrives")
	used.send("SET a 1")
	used.requireSilence()
	n.BlackHoleRequests(false)
	used.requireCut()
	idle.send("PING")
	require.Equal(t, "+PONG", idle.line())
	require.Empty(t, n.Keys(), "nothing was executed")
}

func TestABlackHoleForRepliesExecutesAndIsSilent(t *testing.T) {
	n := Start(t, 1).Node(0)
	idle, used := dial(t, n.Addr()), dial(t, n.Addr())
	for _, c := range []*wire{idle, used} {
		c.send("PING")
		require.Equal(t, "+PONG", c.line())
	}
	n.BlackHoleReplies(true)
	used.send("SET a 1")
	require.NoError(t, n.WaitRequests(testContext(t), "SET", 1))
	used.requireSilence()
	require.Equal(t, []string{"a"}, n.Keys())
	n.BlackHoleReplies(false)
	used.requireCut()
	idle.send("PING")
	require.Equal(t, "+PONG", idle.line())
}

func TestAReplayedRequestIsExecutedTwiceAndAnsweredOnce(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	n.ReplayRequests(2, "incr")
	c.send("INCR n", "GET n", "INCR n", "INCR n", "GET n")
	for _, want := range []string{":1", "$1", "2", ":3", ":5", "$1", "5"} {
		require.Equal(t, want, c.line())
	}
	require.EqualValues(t, 5, n.Requests("INCR"))
	n.ReplayRequests(1)
	n.DropReplies(1, "INCR")
	c.send("INCR n")
	c.requireCut()
	eventually(t, func() bool { got, _ := n.Get("n"); return got == "7" }, "both faults at once")
	c = dial(t, n.Addr())
	n.ReplayRequests(1)
	c.send("MULTI", "INCR n", "EXEC", "INCR n")
	for _, want := range []string{"+OK", "+QUEUED", "*1", ":8", ":9"} {
		require.Equal(t, want, c.line())
	}
	eventually(t, func() bool { got, _ := n.Get("n"); return got == "10" }, "not inside of MULTI, but the next")
	n.ReplayRequests(1)
	n.ReplayRequests(0)
	c.send("INCR n", "GET n")
	for _, want := range []string{":11", "$2", "11"} {
		require.Equal(t, want, c.line())
	}
}

func TestAHalfOpenConnectionStaysOpenAndSilent(t *testing.T) {
	n := Start(t, 1).Node(0)
	old := dial(t, n.Addr())
	old.send("PING")
	require.Equal(t, "+PONG", old.line())
	n.Delay(time.Hour)
	old.send("SET a 1")
	require.NoError(t, n.WaitRequests(testContext(t), "SET", 1))
	n.HalfOpen()
	n.Delay(0)
	old.send("SET b 2")
	old.requireSilence()
	n.BlackHole(true)
	old.send("SET c 3")
	old.requireSilence()
	n.BlackHole(false)
	old.requireSilence()
	fresh := dial(t, n.Addr())
	fresh.send("PING")
	require.Equal(t, "+PONG", fresh.line(), "new ones work")
	require.Equal(t, []string{"a"}, n.Keys(), "what came before was executed, what came after was not")
	require.Equal(t, 2, n.Connections())
	require.NoError(t, old.Close())
	eventually(t, func() bool { return n.Connections() == 1 }, "over once the client closes it")
}

func TestRequestsThatWaitInAHalfOpenConnectionAreNotExecuted(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	c.send("PING")
	require.Equal(t, "+PONG", c.line())
	n.Freeze()
	c.send("SET a 1")
	eventually(t, func() bool { return n.Pending() > 0 }, "it waits")
	n.HalfOpen()
	n.Thaw()
	c.requireSilence()
	require.NoError(t, n.Client().Ping(testContext(t)).Err())
	require.Empty(t, n.Keys())
	n.Cut()
	c.requireCut()
}

func TestBytesTrickle(t *testing.T) {
	bubble(t, func(t *testing.T, n *Node, dial func() *wire) {
		n.Set("big", strings.Repeat("x", 10_000), 0)
		c := dial()
		n.Trickle(1000)
		begin := time.Now()
		c.send("GET big")
		require.Equal(t, "$10000", c.line())
		require.Less(t, time.Since(begin), 100*time.Millisecond, "the first bytes come at once")
		require.Len(t, c.line(), 10_000)
		require.InDelta(t, 10*time.Second, time.Since(begin), float64(200*time.Millisecond))

		n.Trickle(10)
		begin = time.Now()
		c.send("PING") // 14 bytes there, 7 back
		require.Equal(t, "+PONG", c.line())
		require.InDelta(t, 1900*time.Millisecond, time.Since(begin), float64(200*time.Millisecond))

		n.Trickle(0)
		begin = time.Now()
		c.send("GET big")
		require.Equal(t, "$10000", c.line())
		require.Len(t, c.line(), 10_000)
		require.Zero(t, time.Since(begin))
	})
}

func TestNewConnectionsAreRefusedAndOldOnesGoOn(t *testing.T) {
	n := Start(t, 1).Node(0)
	old := dial(t, n.Addr())
	old.send("PING")
	require.Equal(t, "+PONG", old.line())
	require.NoError(t, n.RefuseNew(true))
	_, err := net.Dial("tcp", n.Addr())
	require.True(t, errors.Is(err, syscall.ECONNREFUSED), "got %v", err)
	old.send("PING")
	require.Equal(t, "+PONG", old.line())
	require.NoError(t, n.RefuseNew(false))
	fresh := dial(t, n.Addr())
	fresh.send("PING")
	require.Equal(t, "+PONG", fresh.line())
	n.Stop()
	require.NoError(t, n.RefuseNew(false))
	_, err = net.Dial("tcp", n.Addr())
	require.Error(t, err, "a stopped node stays so")
}

package redlocktest

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestAFrozenNodeAcceptsAndDoesNotAnswer(t *testing.T) {
	n := Start(t, 1).Node(0)
	old := dial(t, n.Addr())
	old.send("PING")
	require.Equal(t, "+PONG", old.line())
	n.Freeze()
	fresh := dial(t, n.Addr())
	fresh.send("SET a 1")
	old.send("SET b 2")
	eventually(t, func() bool { return n.Pending() == 2*len("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n") }, "bytes pile up")
	fresh.requireSilence()
	require.Empty(t, n.Keys())
	n.Thaw()
	require.Equal(t, "+OK", fresh.line())
	require.Equal(t, "+OK", old.line())
	require.Equal(t, []string{"a", "b"}, n.Keys())
}

func TestBytesOfClosedConnectionsAreExecutedAfterTheThaw(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	n.Freeze()
	var commands []string
	for i := range 500 { // more than the server's read buffer holds
		commands = append(commands, "SET k"+itoa(i)+" v")
	}
	c := dial(t, n.Addr())
	c.send(commands...)
	eventually(t, func() bool { return n.Pending() > 500*25 }, "bytes arrive")
	require.NoError(t, c.Close())
	require.Equal(t, 1, n.Connections(), "the connection is the node's until it has read it")
	n.Thaw()
	require.NoError(t, n.WaitRequests(ctx, "SET", 500))
	require.Len(t, n.Keys(), 500)
	eventually(t, func() bool { return n.Connections() == 0 }, "the connection ends")
}

func TestAClientThatTimedOutHasStillWritten(t *testing.T) {
	ctx := testContext(t)
	n := Start(t, 1).Node(0)
	c := bare(t, n.Addr(), func(o *redis.Options) { o.ReadTimeout = 20 * time.Millisecond })
	require.NoError(t, c.Ping(ctx).Err())
	n.Freeze()
	require.Error(t, c.Set(ctx, "k", "v", 0).Err())
	require.Empty(t, n.Keys())
	n.Thaw()
	require.NoError(t, n.WaitRequests(ctx, "SET", 1))
	require.Equal(t, []string{"k"}, n.Keys())
}

func TestNothingIsExecutedOnceFreezeHasReturned(t *testing.T) {
	n := Start(t, 1).Node(0)
	c := dial(t, n.Addr())
	go func() { // ends with the connection
		request := []byte(strings.Repeat("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n", 100))
		for {
			if _, err := c.Write(request); err != nil {
				return
			}
		}
	}()
	go func() { // reads the replies, so that the client is not cut
		for {
			if _, err := c.r.ReadByte(); err != nil {
				return
			}
		}
	}()
	require.NoError(t, n.WaitRequests(testContext(t), "INCR", 100))
	for range 20 {
		n.Freeze()
		before, _ := n.Get("n")
		executed := n.Requests("INCR")
		time.Sleep(time.Millisecond) // nothing to wait for: nothing may happen
		after, _ := n.Get("n")
		require.Equal(t, before, after)
		require.Equal(t, executed, n.Requests("INCR"))
		n.Thaw()
	}
	require.NoError(t, c.Close())
}

func TestAFrozenNodeReadsNoMoreThanItsBound(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Freeze()
	c := dial(t, n.Addr())
	full := make(chan struct{})
	go func() { // ends when nothing more fits, or with the connection
		defer close(full)
		block := make([]byte, 1<<20)
		for range 64 {
			_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}()
	<-full
	require.LessOrEqual(t, n.Pending(), requestLimit+readSize)
	require.GreaterOrEqual(t, n.Pending(), requestLimit/2)
	n.Stop()
	require.Zero(t, n.Pending())
}

func TestStopEndsAFreeze(t *testing.T) {
	n := Start(t, 1).Node(0)
	n.Freeze()
	c := dial(t, n.Addr())
	c.send("SET k v")
	eventually(t, func() bool { return n.Pending() > 0 }, "bytes arrive")
	require.NoError(t, n.Restart())
	c.requireCut()
	require.NoError(t, n.Client().Ping(testContext(t)).Err())
	require.Empty(t, n.Keys(), "what waited died with the process")
}

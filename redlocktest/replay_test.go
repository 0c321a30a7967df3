package redlocktest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAProxyReplaysRequestsAndThrowsTheSecondRepliesAway(t *testing.T) {
	n := Start(t, 1).Node(0)
	p, err := NewProxy(n.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	for hello, null := range map[string]string{"PING": "$-1", "HELLO 3": "_"} {
		n.FlushAll()
		n.Set("s", "a\r\n+b", 0)
		c := dial(t, p.Addr())
		expect := func(lines ...string) {
			t.Helper()
			for _, want := range lines {
				require.Equal(t, want, c.line(), hello)
			}
		}
		c.send(hello, "ECHO ready")
		for c.line() != "ready" {
		}
		p.ReplayRequests(2)
		c.send("INCR n")
		expect(":1")
		c.send("INCR n", "GET s", "GET none", "RPUSH l x", "LRANGE l 0 -1")
		expect(":3", "$5", "a", "+b", null, ":1", "*1", "$1", "x")
		c.send("INCR n")
		expect(":5")
		p.ReplayRequests(1)
		p.ReplayRequests(0)
		c.send("INCR n", "LRANGE l 0 -1")
		expect(":6", "*2", "$1", "x", "$1", "x")
	}
}

func TestValuesEndWhereTheyEnd(t *testing.T) {
	for _, value := range []string{
		"+OK\r\n", ":1\r\n", "-ERR x\r\n", "$3\r\na\r\n\r\n", "$-1\r\n", "$0\r\n\r\n", "*0\r\n", "*-1\r\n", "_\r\n",
		"*2\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n", "%1\r\n+a\r\n*1\r\n:1\r\n", "~1\r\n#t\r\n", "=5\r\ntxt:a\r\n", ">2\r\n+a\r\n+b\r\n",
	} {
		stream := []byte(value + value)
		for step := 1; step <= len(stream); step++ { // however it is cut
			var s respScanner
			var ends []int
			for at := 0; at < len(stream); {
				used, done := s.next(stream[at:min(len(stream), at+step)])
				if at += used; done {
					require.True(t, s.idle())
					ends = append(ends, at)
				}
			}
			require.Equal(t, []int{len(value), len(stream)}, ends, "%q by %d", value, step)
		}
	}
}

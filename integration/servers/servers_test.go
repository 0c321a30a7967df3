package servers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// onEvery runs a claim about n servers on every kind of server that is to be had and can do it.
func onEvery(t *testing.T, n int, claim func(t *testing.T, set *Set), opts ...Option) {
	t.Helper()
	var cfg config
	for _, opt := range opts {
		opt(&cfg)
	}
	for _, p := range Providers(t) {
		if cfg.unmet(p) == nil {
			t.Run(string(p), func(t *testing.T) { claim(t, Start(t, n, append(opts, WithProvider(p))...)) })
		}
	}
}

func TestServersAreEmptyAndIndependent(t *testing.T) {
	onEvery(t, 3, func(t *testing.T, set *Set) {
		require.Equal(t, 3, set.Len())
		for i, c := range set.Clients() {
			require.Zero(t, c.DBSize(t.Context()).Val())
			require.NoError(t, c.Set(t.Context(), fmt.Sprint("key", i), "v", 0).Err())
		}
		for i, u := range set.URLs() {
			opts, err := redis.ParseURL(u)
			require.NoError(t, err)
			require.Equal(t, set.Server(i).Addr(), opts.Addr)
			c := redis.NewClient(opts)
			require.Equal(t, []string{fmt.Sprint("key", i)}, c.Keys(t.Context(), "*").Val())
			require.NoError(t, c.Close())
		}
	})
}

func TestFrozenServerIsSilentAndExecutesAfterTheThaw(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		conn := dial(t, s)
		require.Equal(t, "+PONG", conn.ask(t, "PING"))

		s.Freeze()
		s.Freeze() // once more changes nothing
		conn.send(t, "SET k v")
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		_, err := conn.replies.ReadString('\n')
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		s.Thaw()
		require.Equal(t, "+OK", conn.reply(t))
		require.Equal(t, "v", s.Client().Get(t.Context(), "k").Val())
		s.Thaw()
	})
}

func TestFrozenServerThatDiesNeverExecutesWhatItWasSent(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		conn := dial(t, s)
		require.Equal(t, "+OK", conn.ask(t, "SET before 1"))
		s.Freeze()
		conn.send(t, "SET after 1")
		s.Kill()
		s.RestartKeeping()
		require.Equal(t, []string{"before"}, s.Client().Keys(t.Context(), "*").Val())
	}, WithAOF())
}

func TestKilledServerRefusesConnections(t *testing.T) {
	onEvery(t, 2, func(t *testing.T, set *Set) {
		set.Server(0).Kill()
		set.Server(0).Kill()
		conn, err := net.DialTimeout("tcp", set.Server(0).Addr(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err)
		require.NoError(t, set.Server(1).Client().Ping(t.Context()).Err(), "the other one lives")
	})
}

func TestRestartIsEmptyAtTheSameAddress(t *testing.T) {
	before := map[string]func(s *Server){
		"running": func(*Server) {},
		"frozen":  (*Server).Freeze,
		"dead":    (*Server).Kill,
	}
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		for state, bring := range before {
			require.NoError(t, s.Client().Set(t.Context(), "k", state, 0).Err())
			addr, run := s.Addr(), runID(t, s)
			bring(s)
			s.Restart()
			require.Equal(t, addr, s.Addr(), state)
			require.Zero(t, s.Client().DBSize(t.Context()).Val(), state)
			require.NotEqual(t, run, runID(t, s), state)
		}
	})
}

func TestRestartIsEmptyDespiteItsDisk(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		addr := s.Addr()
		require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
		s.Restart()
		require.Equal(t, addr, s.Addr())
		require.Zero(t, s.Client().DBSize(t.Context()).Val())
		s.RestartKeeping()
		require.Zero(t, s.Client().DBSize(t.Context()).Val())
	}, WithAOF())
}

func TestRestartKeepingHasAllThatWasAnswered(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		for i := range 100 {
			require.NoError(t, s.Client().Set(t.Context(), fmt.Sprint(i), "v", 0).Err())
		}
		run := runID(t, s)
		s.RestartKeeping()
		require.EqualValues(t, 100, s.Client().DBSize(t.Context()).Val())
		require.NotEqual(t, run, runID(t, s))
	}, WithAOF())
}

func TestRestartKeepingHasTheLastSnapshot(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		require.NoError(t, s.Client().Set(t.Context(), "saved", "v", 0).Err())
		require.NoError(t, s.Client().Save(t.Context()).Err())
		require.NoError(t, s.Client().Del(t.Context(), "saved").Err())
		require.NoError(t, s.Client().Set(t.Context(), "later", "v", 0).Err())
		s.RestartKeeping()
		require.Equal(t, []string{"saved"}, s.Client().Keys(t.Context(), "*").Val())
	}, WithRDB())
}

func TestDisconnectedServerRunsOnAndComesBackAtItsAddress(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		require.Equal(t, set.Provider() == Containers, s.CanDisconnect())
		if !s.CanDisconnect() {
			require.Contains(t, failure(s, (*Server).Disconnect), "only containers")
			return
		}
		require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
		addr, run := s.Addr(), runID(t, s)
		s.Disconnect()
		require.Error(t, s.probe().ping(t.Context()))
		s.Reconnect()
		require.Equal(t, addr, s.Addr())
		require.Equal(t, run, runID(t, s))
		require.Equal(t, "v", s.Client().Get(t.Context(), "k").Val())
	})
}

func TestDisconnectedServerStaysSoWhenRestarted(t *testing.T) {
	claim := func(t *testing.T, set *Set) {
		s := set.Server(0)
		if !s.CanDisconnect() {
			return
		}
		require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
		run := runID(t, s)
		s.Disconnect()
		s.Restart()
		require.Error(t, s.probe().ping(t.Context()))
		s.Reconnect()
		require.NotEqual(t, run, runID(t, s))
		require.Zero(t, s.Client().DBSize(t.Context()).Val())
	}
	t.Run("in memory", func(t *testing.T) { onEvery(t, 1, claim) })
	t.Run("on disk", func(t *testing.T) { onEvery(t, 1, claim, WithAOF()) })
}

func TestPasswordIsAskedForAndInTheURL(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		require.Contains(t, dial(t, s).ask(t, "PING"), "NOAUTH")
		opts, err := redis.ParseURL(s.URL())
		require.NoError(t, err)
		require.Equal(t, "a:b/c@d", opts.Password)
		s.Restart()
		require.NoError(t, s.Client().Ping(t.Context()).Err())
	}, WithPassword("a:b/c@d"))
}

func TestArgumentsReachTheServerAndStay(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		s.Restart()
		got := s.Client().ConfigGet(t.Context(), "maxmemory*").Val()
		require.Equal(t, "2097152", got["maxmemory"])
		require.Equal(t, "volatile-lru", got["maxmemory-policy"])
	}, WithArgs("--maxmemory", "2mb"), WithArgs("--maxmemory-policy", "volatile-lru"))
}

func TestServerWithUnixSocketIsTheSameByBoth(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		s := set.Server(0)
		opts, err := redis.ParseURL(s.SocketURL())
		require.NoError(t, err)
		require.Equal(t, "unix", opts.Network)
		c := redis.NewClient(opts)
		defer c.Close()
		for range 2 {
			require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
			require.Equal(t, "v", c.Get(t.Context(), "k").Val())
			s.Restart()
		}
	}, WithUnixSocket(), WithPassword("secret"))
}

func TestServerThatKeepsNothingCannotBeAskedTo(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		require.Contains(t, failure(set.Server(0), (*Server).RestartKeeping), "WithAOF or WithRDB")
		require.NoError(t, set.Server(0).Client().Ping(t.Context()).Err())
	})
}

func TestDeadServerCannotBeFrozen(t *testing.T) {
	onEvery(t, 1, func(t *testing.T, set *Set) {
		set.Server(0).Kill()
		require.Contains(t, failure(set.Server(0), (*Server).Freeze), "dead")
	})
}

// failure returns how a server's method fails its test.
func failure(s *Server, method func(*Server)) string {
	t := &recorder{TB: s.t}
	victim := &Server{t: t, node: s.node, cfg: s.cfg, dead: s.dead}
	done := make(chan struct{})
	go func() {
		defer close(done)
		method(victim)
	}()
	<-done
	return t.failure
}

// recorder is a test that writes down how it fails.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func runID(t *testing.T, s *Server) string {
	t.Helper()
	id, err := s.probe().info(t.Context(), "run_id")
	require.NoError(t, err)
	return id
}

// rawConn is a bare connection, so that a test knows what has been sent and when.
type rawConn struct {
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, s *Server) rawConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.Addr(), 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return rawConn{Conn: conn, replies: bufio.NewReader(conn)}
}

func (c rawConn) send(t *testing.T, command string) {
	t.Helper()
	_, err := io.WriteString(c, request(strings.Fields(command)...))
	require.NoError(t, err)
}

func (c rawConn) reply(t *testing.T) string {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	line, err := c.replies.ReadString('\n')
	require.NoError(t, err)
	return line[:len(line)-2]
}

func (c rawConn) ask(t *testing.T, command string) string {
	t.Helper()
	c.send(t, command)
	return c.reply(t)
}

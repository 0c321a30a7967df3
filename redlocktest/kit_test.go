package redlocktest

import (
	"bufio"
	"context"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what must happen, on the slowest machine.
const patience = 20 * time.Second

// silence is how long a test waits for what must not happen.
const silence = 30 * time.Millisecond

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // nodes refuse on purpose
	os.Exit(m.Run())
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok.
func eventually(t testing.TB, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, patience, time.Millisecond, what)
}

// wire is a client that sends bytes and reads lines: nothing is retried,
// nothing is sent that the test did not write.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return newWire(t, conn)
}

func newWire(t testing.TB, conn net.Conn) *wire {
	return &wire{Conn: conn, t: t, r: bufio.NewReader(conn)}
}

// send writes commands, given as words, in one piece.
func (w *wire) send(commands ...string) {
	w.t.Helper()
	var b strings.Builder
	for _, c := range commands {
		words := strings.Fields(c)
		b.WriteString("*" + itoa(len(words)) + "\r\n")
		for _, word := range words {
			b.WriteString("$" + itoa(len(word)) + "\r\n" + word + "\r\n")
		}
	}
	_, err := w.Write([]byte(b.String()))
	require.NoError(w.t, err)
}

// line reads one line of reply.
func (w *wire) line() string {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(patience)))
	s, err := w.r.ReadString('\n')
	require.NoError(w.t, err)
	return strings.TrimSuffix(s, "\r\n")
}

// requireCut checks that the connection ends without another byte.
func (w *wire) requireCut() {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(patience)))
	s, err := w.r.ReadString('\n')
	require.Empty(w.t, s)
	require.Error(w.t, err)
	require.NotErrorIs(w.t, err, os.ErrDeadlineExceeded, "silent instead of cut")
}

// requireSilence checks that nothing comes for a while.
func (w *wire) requireSilence() {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(silence)))
	_, err := w.r.ReadByte()
	require.ErrorIs(w.t, err, os.ErrDeadlineExceeded)
}

// bare returns a client that tries once.
func bare(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1}
	for _, c := range change {
		c(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// requireNoGoroutines waits until no goroutine runs code of the kit or of the
// embedded server.
func requireNoGoroutines(t testing.TB) {
	t.Helper()
	var left string
	eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		left = ""
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			ours := strings.Contains(g, "redlocktest.(*") || strings.Contains(g, "miniredis") || strings.Contains(g, "redlocktest.pump")
			if ours && !strings.Contains(g, "testing.tRunner") {
				left += g + "\n\n"
			}
		}
		return left == ""
	}, "goroutines left behind")
	require.Empty(t, left)
}

func itoa(n int) string { return strconv.Itoa(n) }

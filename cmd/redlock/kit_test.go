//go:build linux || darwin

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

// The test binary is also the redlock command and the commands that run under it.
const (
	asRedlock  = "as-redlock"
	asChild    = "as-child"
	envWitness = "REDLOCK_TEST_WITNESS"
	patience   = 40 * time.Second
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asRedlock:
			os.Exit(execute(os.Args[2:], os.Stdout, os.Stderr))
		case asChild:
			os.Exit(childMain(os.Args[2:]))
		case holderCommand: // started by a drill
			os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// childMain is a command to run under a lock.
func childMain(args []string) int {
	switch args[0] {
	case "env":
		for _, e := range os.Environ() {
			fmt.Printf("%q\n", e)
		}
	case "args":
		fmt.Printf("%q\n", args[1:])
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "line":
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("line %q %v\n", line, err)
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "witness":
		return witnessMain(args[1:])
	}
	return 0
}

// witnessMain is a process that tells the test of each signal it gets, and whose death the test sees. Arguments: its
// role; "stubborn" if no signal ends it; and the role of a child to start, which is as stubborn.
func witnessMain(args []string) int {
	stubborn := len(args) > 1 && args[1] == "stubborn"
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH)
	conn, err := net.Dial("unix", os.Getenv(envWitness))
	if err != nil {
		return 99
	}
	if len(args) > 2 {
		c := exec.Command(os.Args[0], asChild, "witness", args[2], args[1])
		if c.Start() != nil {
			return 98
		}
	}
	fmt.Fprintf(conn, "%s %d\n", args[0], os.Getpid())
	orders := make(chan string)
	go func() {
		for in := bufio.NewScanner(conn); in.Scan(); {
			orders <- in.Text()
		}
		orders <- "97" // the test is over: nothing of it stays
	}()
	for {
		select {
		case s := <-signals:
			fmt.Fprintf(conn, "%v\n", s)
			if s == syscall.SIGTERM && !stubborn {
				return 0
			}
		case code := <-orders:
			n, _ := strconv.Atoi(code)
			return n
		}
	}
}

// witnesses is where those processes report.
type witnesses struct {
	t    *testing.T
	path string
	new  chan *witness

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

type witness struct {
	role  string
	pid   int
	conn  net.Conn
	said  chan string    // each signal
	death chan time.Time // when the connection ended
}

func newWitnesses(t *testing.T) *witnesses {
	dir, err := os.MkdirTemp("", "redlock") // t.TempDir can be too long for a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ws := &witnesses{t: t, path: dir + "/s", new: make(chan *witness, 16)}
	l, err := net.Listen("unix", ws.path)
	require.NoError(t, err)
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	t.Cleanup(func() {
		_ = l.Close()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		for _, c := range ws.conns {
			_ = c.Close() // ends the process
		}
	})
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			ws.mu.Lock()
			ws.conns = append(ws.conns, conn)
			ws.mu.Unlock()
			served.Go(func() { ws.serve(conn) })
		}
	})
	return ws
}

func (ws *witnesses) serve(conn net.Conn) {
	in := bufio.NewScanner(conn)
	if !in.Scan() {
		return
	}
	w := &witness{conn: conn, said: make(chan string, 64), death: make(chan time.Time, 1)}
	_, _ = fmt.Sscan(in.Text(), &w.role, &w.pid)
	ws.new <- w
	for in.Scan() {
		w.said <- in.Text()
	}
	w.death <- time.Now()
	close(w.said)
	_ = conn.Close()
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came: "+what)
		panic("unreachable")
	}
}

// next returns the next process that reports, by whatever role.
func (ws *witnesses) next() *witness { ws.t.Helper(); return await(ws.t, "a witness", ws.new) }

// pair returns a command and its child, in this order.
func (ws *witnesses) pair(first string) (a, b *witness) {
	ws.t.Helper()
	a, b = ws.next(), ws.next()
	if a.role != first {
		a, b = b, a
	}
	return a, b
}

func (w *witness) exit(code int) { fmt.Fprintln(w.conn, code) }

// running is a redlock process.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	ended  chan int // its exit code
}

type setup func(*exec.Cmd)

func stdin(r io.Reader) setup { return func(c *exec.Cmd) { c.Stdin = r } }

func env(entries ...string) setup {
	return func(c *exec.Cmd) { c.Env = append(c.Env, entries...) }
}

// launch starts redlock with the nodes in its environment.
func launch(t *testing.T, ns *redlocktest.Nodes, args []string, with ...setup) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command(os.Args[0], append([]string{asRedlock}, args...)...), ended: make(chan int, 1)}
	// Under the race detector a process would else take a second to exit.
	r.cmd.Env = append(os.Environ(), envNodes+"=", "GORACE=atexit_sleep_ms=0")
	if ns != nil {
		r.cmd.Env = append(r.cmd.Env, envNodes+"="+strings.Join(ns.URLs(), ","))
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.WaitDelay = time.Second // for output of processes that should have ended
	for _, f := range with {
		f(r.cmd)
	}
	require.NoError(t, r.cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.cmd.Wait()
		code := r.cmd.ProcessState.ExitCode()
		if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = -int(ws.Signal())
		}
		r.ended <- code
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-done
	})
	return r
}

// code waits for the end and returns the exit code, or minus the signal that ended redlock itself.
func (r *running) code() int {
	r.t.Helper()
	code := await(r.t, "the end of redlock", r.ended)
	for _, line := range strings.Split(strings.TrimSpace(r.stderr.String()), "\n") {
		require.True(r.t, line == "" || strings.HasPrefix(line, "redlock: "), "a message without its prefix: %q", line)
	}
	return code
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(s))
}

// underLock builds the arguments of run for a child of this binary.
func underLock(flags string, child ...string) []string {
	args := append([]string{"run"}, strings.Fields(flags)...)
	return append(append(args, "--", os.Args[0], asChild), child...)
}

// requireFree checks that no node has a key any more. A release may still be under way to nodes beyond the majority.
func requireFree(t *testing.T, ns *redlocktest.Nodes, keys ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, n := range ns.All() {
			for _, k := range keys {
				if _, ok := n.Get(k); ok {
					return false
				}
			}
		}
		return true
	}, 5*time.Second, 5*time.Millisecond, "a key was left behind")
}

// moreRounds waits until a node was asked k more times.
func moreRounds(t *testing.T, n *redlocktest.Node, k int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, n.WaitRequests(ctx, "evalsha", n.Requests("evalsha")+k))
}

func notCalled(t *testing.T, ws *witnesses) {
	t.Helper()
	require.Empty(t, ws.new, "the command ran")
}

func witnessed(ws *witnesses) setup { return env(envWitness + "=" + ws.path) }

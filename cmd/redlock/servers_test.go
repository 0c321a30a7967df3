//go:build linux || darwin

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// team is five redis-servers with scripts that stop and start them, as a team has them.
type team struct {
	t     *testing.T
	dir   string
	ports []string
}

const teamPassword = "hun%ter2"

// newTeam starts the servers. They need a password, and forget everything when they are stopped.
func newTeam(t *testing.T) *team {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g := &team{t: t, dir: t.TempDir()}
	for tries := 0; len(g.ports) < 5; tries++ {
		require.Less(t, tries, 1000)
		// Below what kernels give to outgoing connections: one of those could take the port of a server that is down.
		port := strconv.Itoa(10000 + rand.IntN(10000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		defer l.Close()
		g.ports = append(g.ports, port)
	}
	script := `#!/bin/sh
set -e
dir=` + g.dir + `/$2
case $1 in
start)
	mkdir -p "$dir"
	redis-server --port "$2" --bind 127.0.0.1 --requirepass '` + teamPassword + `' --save '' --dir "$dir" --daemonize yes --pidfile "$dir/pid" --logfile "$dir/log"
	for i in $(seq 500); do [ -s "$dir/pid" ] && exit 0; sleep 0.02; done; exit 1 ;;
stop)
	echo "stop $2" >>` + g.dir + `/done
	kill -9 "$(cat "$dir/pid")"
	rm "$dir/pid" ;;
esac
`
	require.NoError(t, os.WriteFile(g.script(), []byte(script), 0o755))
	return g
}

// begin starts the servers, and waits until they are old enough for a guard.
func (g *team) begin(guard time.Duration) {
	g.t.Helper()
	g.t.Cleanup(func() {
		for _, port := range g.ports {
			if text, err := os.ReadFile(filepath.Join(g.dir, port, "pid")); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
	for _, port := range g.ports {
		out, err := exec.Command(g.script(), "start", port).CombinedOutput()
		require.NoError(g.t, err, string(out))
	}
	for _, port := range g.ports {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, Password: teamPassword})
		require.Eventually(g.t, func() bool {
			seconds, err := strconv.Atoi(c.InfoMap(g.t.Context(), "server").Item("Server", "uptime_in_seconds"))
			return err == nil && time.Duration(seconds)*time.Second >= guard
		}, guard+10*time.Second, 20*time.Millisecond)
		_ = c.Close()
	}
}

func (g *team) script() string { return filepath.Join(g.dir, "ctl") }

func (g *team) file() string {
	var urls []string
	for _, port := range g.ports {
		urls = append(urls, "redis://:hun%25ter2@127.0.0.1:"+port)
	}
	path := filepath.Join(g.dir, "nodes")
	require.NoError(g.t, os.WriteFile(path, []byte(strings.Join(urls, "\n")), 0o600))
	return path
}

// args are those of a drill on the servers.
func (g *team) args(more ...string) []string { return g.argsThen("", more...) }

// argsThen does something more after every stop.
func (g *team) argsThen(then string, more ...string) []string {
	return append([]string{"drill", "--nodes-file", g.file(), "--settle", "0", "--stop-cmd", g.script() + " stop {port}" + then, "--start-cmd",
		g.script() + " start {port}"}, more...)
}

// answer says which servers are up.
func (g *team) answer() (up int) {
	for _, port := range g.ports {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, Password: teamPassword, DialerRetries: 1, MaxRetries: -1})
		if c.Ping(g.t.Context()).Err() == nil {
			up++
		}
		_ = c.Close()
	}
	return up
}

// stops are the servers that were stopped, in their order.
func (g *team) stops() []string {
	text, err := os.ReadFile(filepath.Join(g.dir, "done"))
	if err != nil {
		return nil
	}
	var ports []string
	for _, l := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		ports = append(ports, strings.TrimPrefix(l, "stop "))
	}
	return ports
}

func TestATeamDrillsItsOwnServers(t *testing.T) {
	t.Parallel()
	g := newTeam(t)
	g.begin(2 * time.Second)
	js := filepath.Join(g.dir, "result.json")
	for _, drill := range [][]string{{"majority", "paused-holder", "--ttl", "1s"}, {"restart", "--ttl", "4s", "--node-timeout", "1s"}} {
		r := launch(t, nil, g.args(append(drill, "--allow-outage", "--json", js)...))
		require.Zero(t, r.code(), r.stdout.String()+r.stderr.String())
		for _, p := range readPlayed(t, js) {
			require.Equal(t, "pass", p.Verdict, p.Name)
		}
		require.NotContains(t, r.stdout.String()+r.stderr.String(), "hun")
	}
	require.Equal(t, 5, g.answer())
	p := g.ports
	require.Equal(t, []string{p[2], p[3], p[4], p[3], p[4], p[2]}, g.stops())
}

func TestWhatADrillHasStoppedIsStartedAgain(t *testing.T) {
	t.Parallel()
	g := newTeam(t)
	g.begin(2 * time.Second)

	// 1. When it is interrupted, here while the command that stops a node still has something to do.
	r := launch(t, nil, g.argsThen("; sleep 0.5", "one-node", "--ttl", "1s"))
	require.Eventually(t, func() bool { return len(g.stops()) == 1 && g.answer() == 4 }, patience, 5*time.Millisecond)
	r.signal(syscall.SIGINT)
	require.Equal(t, exitSignal+int(syscall.SIGINT), r.code())
	require.Contains(t, r.stderr.String(), "what it had stopped is started again")
	require.NotContains(t, r.stdout.String(), "FAIL")
	require.Equal(t, 5, g.answer())

	// 2. When a command fails after it has done its work.
	r = launch(t, nil, g.argsThen("; echo the password is hun%ter2 or hun%25ter2 >&2; exit 3", "two-nodes", "--ttl", "1s"))
	require.Equal(t, exitUndone, r.code(), r.stdout.String())
	require.Contains(t, r.stderr.String(), "--stop-cmd for node 4: exit status 3: the password is *** or ***")
	require.Equal(t, 5, g.answer())
	require.Equal(t, []string{g.ports[4], g.ports[3]}, g.stops())

	// 3. A node that is away by itself keeps the drill from stopping more.
	out, err := exec.Command(g.script(), "stop", g.ports[0]).CombinedOutput()
	require.NoError(t, err, string(out))
	r = launch(t, nil, g.args("one-node", "--ttl", "1s"))
	require.Equal(t, exitUndone, r.code(), r.stdout.String())
	require.Contains(t, r.stderr.String(), fmt.Sprintf("node 1 (127.0.0.1:%s) does not answer, and it was not the drill", g.ports[0]))
	require.Len(t, g.stops(), 3, "it stopped another")
}

func TestACommandThatDoesNothingIsNoticed(t *testing.T) {
	t.Parallel()
	g := newTeam(t)
	g.begin(2 * time.Second)
	r := launch(t, nil, []string{"drill", "one-node", "--ttl", "1s", "--nodes-file", g.file(), "--stop-cmd", "sleep 100 # {node}", "--start-cmd", "true {node}",
		"--cmd-timeout", "300ms"})
	require.Equal(t, exitUndone, r.code(), r.stdout.String())
	require.Contains(t, r.stderr.String(), "--stop-cmd for node 5: not done after 300ms")
}

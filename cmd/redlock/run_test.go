//go:build linux || darwin

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

func TestEachEndHasAnExitCodeOfItsOwn(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	dead := redlocktest.Start(t, 3)
	for _, n := range dead.All() {
		n.Stop()
	}
	for _, n := range ns.All() {
		n.Set("lock:taken", "another", 0)
	}
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	for _, c := range []struct {
		name string
		ns   *redlocktest.Nodes
		args []string
		code int
		says string
	}{
		{"the command's own", ns, underLock("k", "exit", "7"), 7, ""},
		{"success", ns, underLock("k", "exit", "0"), 0, ""},
		{"the command's signal", ns, underLock("k", "die"), 128 + 9, ""},
		{"held", ns, underLock("--wait 0 k taken", "exit", "0"), exitHeld, "held by another"},
		{"no quorum", dead, underLock("--wait 0 k", "exit", "0"), exitNoQuorum, "connection refused"},
		{"no dash", ns, []string{"run", "k", "true"}, exitUsage, "put --"},
		{"no key", ns, []string{"run", "--", "true"}, exitUsage, "no key"},
		{"no command", ns, []string{"run", "k", "--"}, exitUsage, "no command"},
		{"no nodes", nil, underLock("k", "exit", "0"), exitUsage, "no nodes"},
		{"no such flag", ns, underLock("--wat 0 k", "exit", "0"), exitUsage, "--wat"},
		{"no such subcommand", ns, []string{"walk"}, exitUsage, "walk"},
		{"bad duration", ns, underLock("--ttl 5 k", "exit", "0"), exitUsage, "--ttl"},
		{"bad grace", ns, underLock("--ttl 5s --grace 4s k", "exit", "0"), exitUsage, "--grace"},
		{"bad key", ns, underLock("redlock:x", "exit", "0"), exitUsage, "redlock:x"},
		{"bad label", ns, append([]string{"run", "--label", "a\nb"}, underLock("k", "exit", "0")[1:]...), exitUsage, "label"},
		{"not found", ns, []string{"run", "k", "--", "redlock-has-no-such-command"}, exitNotFound, "not found"},
		{"not there", ns, []string{"run", "k", "--", "/no/such/command"}, exitNotFound, "not found"},
		{"not executable", ns, []string{"run", "k", "--", text}, exitCannotExec, "cannot execute"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := launch(t, c.ns, c.args)
			require.Equal(t, c.code, r.code(), r.stderr.String())
			require.Contains(t, r.stderr.String(), c.says)
			if c.says == "" {
				require.Empty(t, r.stderr.String())
			}
			requireFree(t, ns, "lock:k")
		})
	}
}

func TestACommandThatCannotStartGivesTheLockBack(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700))
	r := launch(t, ns, []string{"run", "k", "--", script})
	require.Equal(t, exitNotFound, r.code(), r.stderr.String())
	asked := int64(0)
	for _, n := range ns.All() {
		asked += n.Requests("evalsha")
	}
	require.Positive(t, asked, "the lock was never taken")
	requireFree(t, ns, "lock:k")
}

func TestAfterTheDashNothingIsOurs(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	r := launch(t, ns, underLock("k --ttl 5s", "args", "--ttl", "x", "--wait=y", "--", "--nodes", "redis://u:p@h", "--help", "-h", ""))
	require.Zero(t, r.code(), r.stderr.String())
	require.Equal(t, `["--ttl" "x" "--wait=y" "--" "--nodes" "redis://u:p@h" "--help" "-h" ""]`+"\n", r.stdout.String())
}

func TestTheCommandReadsOurInput(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	text := strings.Repeat("all of it\n", 20000)
	r := launch(t, ns, underLock("k", "cat"), stdin(strings.NewReader(text)))
	require.Zero(t, r.code(), r.stderr.String())
	require.Equal(t, text, r.stdout.String())
}

func TestTheCommandIsToldOfItsLock(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	before := time.Now()
	r := launch(t, ns, underLock("b b a b --prefix my: --label me --ttl 20s", "env"),
		env("REDLOCK_KEYS=old", "REDLOCK_TOKEN=old", "OTHER=kept"))
	require.Zero(t, r.code(), r.stderr.String())
	got := map[string]string{}
	for line := range strings.Lines(r.stdout.String()) {
		entry, err := strconv.Unquote(strings.TrimSpace(line))
		require.NoError(t, err)
		name, value, _ := strings.Cut(entry, "=")
		require.NotContains(t, got, name, "twice in the environment")
		got[name] = value
	}
	require.Equal(t, "a\nb", got[envKeys])
	require.True(t, strings.HasSuffix(got[envToken], " me"), got[envToken])
	fence, err := strconv.ParseUint(got[envFence], 10, 64)
	require.NoError(t, err)
	require.Positive(t, fence)
	require.NotContains(t, got, envNodes)
	require.Equal(t, "kept", got["OTHER"])
	deadline, err := time.Parse(time.RFC3339Nano, got[envDeadline])
	require.NoError(t, err)
	require.WithinRange(t, deadline, before.Add(15*time.Second), time.Now().Add(20*time.Second))
	requireFree(t, ns, "my:a", "my:b")
}

func TestAPasswordInAnArgumentIsRefused(t *testing.T) {
	ns := redlocktest.Start(t, 1)
	for _, nodes := range []string{"redis://u:hunter2@127.0.0.1:1", "127.0.0.1:1?password=hunter2"} {
		for _, args := range [][]string{underLock("k --nodes "+nodes, "exit", "0"), {"drill", "--nodes=" + nodes}} {
			r := launch(t, ns, args)
			require.Equal(t, exitUsage, r.code())
			require.Contains(t, r.stderr.String(), "--nodes-file")
			require.NotContains(t, r.stderr.String()+r.stdout.String(), "hunter2")
		}
	}
}

func TestAPasswordInTheEnvironmentOrAFileWorks(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	for _, n := range ns.All() {
		n.RequirePassword("hunter2")
	}
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(ns.URLs(), "\n")), 0o600))
	r := launch(t, ns, underLock("k", "exit", "0"))
	require.Zero(t, r.code(), r.stderr.String())
	r = launch(t, nil, underLock("k --nodes-file "+file, "exit", "0"))
	require.Zero(t, r.code(), r.stderr.String())

	// Without it, the nodes' refusal is the reason.
	var bare []string
	for _, n := range ns.All() {
		bare = append(bare, n.Addr())
	}
	r = launch(t, nil, underLock("k --wait 0 --nodes "+strings.Join(bare, ","), "exit", "0"))
	require.Equal(t, exitNoQuorum, r.code(), r.stderr.String())
	require.Contains(t, r.stderr.String(), "NOAUTH")
}

func TestTheWaitIsBounded(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	for _, n := range ns.All() {
		n.Set("lock:k", "another", 0)
	}
	began := time.Now()
	r := launch(t, ns, underLock("k --wait 300ms", "exit", "0"))
	require.Equal(t, exitHeld, r.code(), r.stderr.String())
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestTheSecondWaitsForTheFirst(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	first := launch(t, ns, underLock("k other", "witness", "first"), witnessed(ws))
	one := ws.next()
	second := launch(t, ns, underLock("k", "witness", "second"), witnessed(ws))
	moreRounds(t, ns.Node(0), 6)
	notCalled(t, ws)

	one.exit(3)
	require.Equal(t, 3, first.code(), first.stderr.String())
	two := ws.next()
	require.Equal(t, "second", two.role)
	two.exit(0)
	require.Zero(t, second.code(), second.stderr.String())
}

func TestNoQuorumIsSaidWhileWaiting(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ns.Node(0).Stop()
	ns.Node(1).Stop()
	r := launch(t, ns, underLock("k --wait 500ms", "exit", "0"))
	require.Equal(t, exitNoQuorum, r.code())
	require.Equal(t, 1, strings.Count(r.stderr.String(), "redlock: waiting:"), r.stderr.String())
}

func TestASignalEndsTheWait(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	pool, err := redlock.Open(ns.URLs())
	require.NoError(t, err)
	defer pool.Close()
	lock, err := pool.Lock(context.Background(), "k")
	require.NoError(t, err)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		r := launch(t, ns, underLock("k", "witness", "w"), witnessed(ws))
		moreRounds(t, ns.Node(0), 2)
		r.signal(syscall.SIGWINCH) // this one does not
		moreRounds(t, ns.Node(0), 2)
		r.signal(s)
		require.Equal(t, exitSignal+int(s), r.code(), r.stderr.String())
		require.Contains(t, r.stderr.String(), "while waiting")
	}
	notCalled(t, ws)
	require.NoError(t, lock.Unlock(context.Background()))
	requireFree(t, ns, "lock:k")
}

func TestSignalsAreForwardedToTheWholeGroup(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k", "witness", "leader", "stubborn", "member"), witnessed(ws))
	leader, member := ws.pair("leader")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH} {
		r.signal(s)
		require.Equal(t, s.String(), await(t, "the signal", leader.said))
		require.Equal(t, s.String(), await(t, "the signal", member.said))
	}
	require.Empty(t, leader.said, "a signal came twice")
	member.exit(0)
	await(t, "the member's end", member.death)
	leader.exit(5)
	require.Equal(t, 5, r.code(), r.stderr.String())
	requireFree(t, ns, "lock:k")
}

func TestATerminatedCommandGivesItsOwnAnswer(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k", "witness", "w"), witnessed(ws))
	ws.next()
	r.signal(syscall.SIGTERM)
	require.Zero(t, r.code(), "the command exits with 0 on TERM")
	requireFree(t, ns, "lock:k")
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	args := append([]string{"-c", `trap '' HUP; exec "$0" "$@"`, os.Args[0], asRedlock}, underLock("k", "witness", "w")...)
	r := launch(t, ns, nil, witnessed(ws), func(c *exec.Cmd) { c.Path, c.Args = "/bin/sh", append([]string{"sh"}, args...) })
	w := ws.next()
	r.signal(syscall.SIGHUP)
	r.signal(syscall.SIGUSR1)
	require.Equal(t, syscall.SIGUSR1.String(), await(t, "the signal", w.said))
	w.exit(0)
	require.Zero(t, r.code(), r.stderr.String())
}

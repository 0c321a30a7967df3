//go:build linux || darwin

package main

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

const guardTTL = 2 * time.Second

// freezeMajority freezes three of five nodes and returns a time at which no lock of guardTTL on them can still be valid.
func freezeMajority(ns *redlocktest.Nodes) time.Time {
	for i := range 3 {
		ns.Node(i).Freeze()
	}
	return time.Now().Add(guardTTL * 99 / 100)
}

func TestTheWholeGroupIsGoneByTheDeadline(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 2s --grace 900ms", "witness", "leader", "stubborn", "member"), witnessed(ws))
	leader, member := ws.pair("leader")
	deadline := freezeMajority(ns)

	require.Equal(t, "terminated", await(t, "TERM", leader.said))
	asked := time.Now()
	require.Equal(t, "terminated", await(t, "TERM", member.said))
	for _, w := range []*witness{leader, member} {
		died := await(t, "death", w.death)
		require.False(t, died.After(deadline), "%s outlived the deadline by %v", w.role, died.Sub(deadline))
		require.Greater(t, died.Sub(asked), 300*time.Millisecond, "KILL came with TERM")
	}
	require.Equal(t, exitLost, r.code(), r.stderr.String())
	require.Contains(t, r.stderr.String(), "no answer within", "the reason of a node")
	require.Contains(t, r.stderr.String(), "KILL to the command")
}

func TestACommandThatEndsOnTermIsStillALoss(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 2s", "witness", "w"), witnessed(ws))
	w := ws.next()
	deadline := freezeMajority(ns)
	require.True(t, await(t, "death", w.death).Before(deadline))
	require.Equal(t, exitLost, r.code(), "it exited with 0")
	require.Contains(t, r.stderr.String(), "it exited with 0")
	require.NotContains(t, r.stderr.String(), "KILL")
}

func TestABackgroundChildOfAShellIsGoneAfterALoss(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	r := launch(t, ns, []string{"run", "k", "--ttl", "2s", "--", "sh", "-c", "sleep 100 & echo $!; wait"},
		func(c *exec.Cmd) { c.Stdout = in })
	require.NoError(t, in.Close())
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "it never ran")

	freezeMajority(ns)
	require.Equal(t, exitLost, r.code(), r.stderr.String())
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestAShortOutageEndsNothing(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 4s --grace 500ms", "witness", "w"), witnessed(ws))
	w := ws.next()
	for i := range 3 {
		ns.Node(i).Freeze()
	}
	require.Eventually(t, func() bool { return ns.Node(0).Pending() > 0 }, patience, time.Millisecond, "no renewal came")
	for i := range 3 {
		ns.Node(i).Thaw()
	}
	moreRounds(t, ns.Node(0), 4) // longer than the lock would have lasted without a renewal
	require.Empty(t, w.said, "it was told to end")
	w.exit(6)
	require.Equal(t, 6, r.code(), r.stderr.String())
}

func TestAnEarlierLossKillsAtOnce(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 4s --grace 200ms", "witness", "leader", "stubborn", "member"), witnessed(ws))
	leader, member := ws.pair("leader")
	for i := range 3 {
		ns.Node(i).Set("lock:k", "another", 0)
	}
	// The next renewal is refused, and what the other nodes have is given back.
	given := func() bool { _, has := ns.Node(4).Get("lock:k"); return !has }
	require.Eventually(t, given, patience, time.Millisecond, "the loss did not come")
	limit := time.Now().Add(300 * time.Millisecond)
	require.True(t, await(t, "death", leader.death).Before(limit))
	require.True(t, await(t, "death", member.death).Before(limit))
	require.Equal(t, exitLost, r.code())
	require.Contains(t, r.stderr.String(), "KILL to the command: lock on \"k\" lost")
	require.Contains(t, r.stderr.String(), "not ours")
	require.NotContains(t, r.stderr.String(), "TERM to the command")
}

func TestMaxHoldEndsTheCommandInTime(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	began := time.Now()
	r := launch(t, ns, underLock("k --ttl 20s --max-hold 2s --grace 1500ms", "witness", "w"), witnessed(ws))
	w := ws.next()
	require.Equal(t, "terminated", await(t, "TERM", w.said))
	require.Equal(t, exitLost, r.code(), r.stderr.String())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Contains(t, r.stderr.String(), "--max-hold 2s is over")
	requireFree(t, ns, "lock:k")
}

func TestWhatACommandLeavesBehindEndsBeforeTheUnlock(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 5s --grace 500ms", "witness", "leader", "stubborn", "member"), witnessed(ws))
	leader, member := ws.pair("leader")
	leader.exit(4)
	require.Equal(t, "terminated", await(t, "TERM", member.said))
	held, _ := ns.Node(0).Get("lock:k")
	require.NotEmpty(t, held, "unlocked while a process was left")
	await(t, "death", member.death)
	require.Equal(t, 4, r.code(), r.stderr.String())
	require.Contains(t, r.stderr.String(), "left processes behind")
	requireFree(t, ns, "lock:k")
}

func TestAKilledRedlockTakesItsCommandAlong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do that")
	}
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k", "witness", "w", "stubborn"), witnessed(ws))
	w := ws.next()
	r.signal(syscall.SIGKILL)
	await(t, "death", w.death)
	require.Equal(t, -int(syscall.SIGKILL), r.code())
}

func TestTheLockIsRenewedForAsLongAsTheCommandRuns(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ws := newWitnesses(t)
	r := launch(t, ns, underLock("k --ttl 500ms", "witness", "w"), witnessed(ws))
	w := ws.next()
	moreRounds(t, ns.Node(0), 10)
	require.Empty(t, w.said, "it was told to end")
	w.exit(0)
	require.Zero(t, r.code(), r.stderr.String())
}

func TestMessagesThatNobodyReadsEndNothing(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	ws := newWitnesses(t)
	in, out, err := os.Pipe()
	require.NoError(t, err)
	r := launch(t, ns, underLock("k --ttl 2s", "witness", "leader", "stubborn", "member"), witnessed(ws),
		func(c *exec.Cmd) { c.Stderr = out })
	leader, member := ws.pair("leader")
	require.NoError(t, in.Close())
	require.NoError(t, out.Close())
	deadline := freezeMajority(ns)
	require.False(t, await(t, "death", leader.death).After(deadline))
	require.False(t, await(t, "death", member.death).After(deadline))
	require.Equal(t, exitLost, r.code())
}

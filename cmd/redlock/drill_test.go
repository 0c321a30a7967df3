//go:build linux || darwin

package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

func TestTheDrillKeepsItsPromises(t *testing.T) {
	began := time.Now()
	r := launch(t, nil, []string{"drill"})
	code := r.code()
	out := r.stdout.String()
	require.Zero(t, code, out)
	require.Less(t, time.Since(began), 30*time.Second)
	require.Empty(t, r.stderr.String())

	// The timeline tells the story in its order.
	at := 0
	for _, said := range []string{"acquired ", "margin ", "2: 2 nodes may forget", "refused ", "held by another", "node 5 is stopped",
		"node 5 lost", "degraded ", "on 4 of 5 nodes, margin 1", "node 4 is stopped", "node 4 lost", "on 3 of 5 nodes, margin 0", "return",
		"restored ", "on 5 of 5 nodes, margin 2", "nodes 3 and 5 are stopped", "node 4 is frozen", "renewal failed",
		"no quorum, granted by ", "needed 3:", "no answer within", "connection refused", "refused ", "LOST", "deadline", "before another client",
		"acquired ", "clean "} {
		i := strings.Index(out[at:], said)
		require.GreaterOrEqual(t, i, 0, "%q is missing after:\n%s", said, out[:at])
		at += i
	}
	require.NotContains(t, out, "\x1b", "colours in a pipe")
	require.NotContains(t, out, "FAIL")

	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Regexp(t, `^PASS 9 of 9 promises kept in [0-9.]+ s:( [a-z-]+=pass){9}$`, lines[len(lines)-1])
	for _, l := range lines[:len(lines)-1] {
		require.LessOrEqual(t, len(l), 120, l)
	}
	column := regexp.MustCompile(`^ +[0-9]+\.[0-9]{3}  .{26}(  \S|$)`)
	for _, l := range regexp.MustCompile(`(?m)^ +[0-9]+\.[0-9]{3} .*$`).FindAllString(out, -1) {
		require.True(t, len(l) < 35 || column.MatchString(l), "not aligned: %q", l)
	}
}

func TestADrillOnNodesThatItCannotStopRunsTheOtherSteps(t *testing.T) {
	ns := redlocktest.Start(t, 5)
	r := launch(t, nil, []string{"drill", "--ttl", "1s", "--nodes", strings.Join(ns.URLs(), ",")})
	require.Zero(t, r.code(), r.stdout.String())
	require.Contains(t, r.stdout.String(), "Left out: ")
	require.Contains(t, r.stdout.String(), "PASS 4 of 4 ")
	for _, n := range ns.All() {
		for _, k := range n.Keys() {
			require.NotContains(t, k, "drill-", "of its lock nothing stays")
		}
	}
}

func TestADrillThatCannotLockFails(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	ns.Node(0).Stop()
	ns.Node(1).Stop()
	r := launch(t, nil, []string{"drill", "--ttl", "500ms", "--nodes", strings.Join(ns.URLs(), ",")})
	require.Equal(t, exitFailed, r.code(), r.stdout.String())
	require.Contains(t, r.stdout.String(), "FAIL 0 of 1 ")
	require.Contains(t, r.stdout.String(), "acquire=FAIL")
	require.Contains(t, r.stdout.String(), "connection refused")
}

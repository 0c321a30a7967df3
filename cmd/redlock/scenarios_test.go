//go:build linux || darwin

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

// drillTook is the last line of named drills.
var drillTook = regexp.MustCompile(`(?m)^(PASS|FAIL|UNDONE) (\d+) of (\d+) promises kept, (\d+) of (\d+) scenarios played, in [0-9.]+ s: (.*)$`)

// readPlayed reads what --json wrote.
func readPlayed(t *testing.T, path string) []playedJSON {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var all struct{ Scenarios []playedJSON }
	require.NoError(t, json.Unmarshal(text, &all))
	return all.Scenarios
}

// Most of a scenario is waiting, so some are played at once, each by a process of its own.
func TestEveryScenarioKeepsItsPromises(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(sc scenario) *running {
		ttl := "1500ms"
		if sc.name == "lost-reply" {
			ttl = "3s" // it promises to be faster than the TTL
		}
		return launch(t, nil, []string{"drill", sc.name, "--ttl", ttl, "--node-timeout", "375ms", "--json", filepath.Join(dir, sc.name+".json"),
			"--report", filepath.Join(dir, sc.name+".html"), "--history", filepath.Join(dir, sc.name+".jsonl")})
	}
	const atOnce = 5
	var all []*running
	longest := slices.Clone(scenarios) // first, so that nothing waits for them at the end
	slices.SortStableFunc(longest, func(a, b scenario) int {
		return int(b.takes(drillNodes, time.Second) - a.takes(drillNodes, time.Second))
	})
	for i, sc := range longest {
		for len(all) < min(i+atOnce, len(longest)) {
			all = append(all, start(longest[len(all)]))
		}
		code, out := all[i].code(), all[i].stdout.String()
		if code != exitOK && strings.Contains(out, "busy machine") { // by what it measured; once more, alone
			again := start(sc)
			code, out = again.code(), again.stdout.String()
		}
		require.Zero(t, code, "%s\n%s", out, all[i].stderr.String())
		require.Regexp(t, `^1 of 1: `+sc.name+`: `, out)
		require.Contains(t, drillTook.FindString(out), sc.name+"=pass")
		require.NotContains(t, out, "FAILED")
		for _, l := range strings.Split(out, "\n") {
			require.LessOrEqual(t, len(l), 170, l)
		}

		played := readPlayed(t, filepath.Join(dir, sc.name+".json"))
		require.Len(t, played, 1)
		require.Equal(t, "pass", played[0].Verdict)
		kept := map[string]bool{}
		for _, p := range played[0].Promises {
			kept[p.Name] = p.Kept
		}
		for _, always := range []string{"exclusive", "fences", "honest", "clean"} {
			require.True(t, kept[always], "%s: %s", sc.name, always)
		}
		if len(sc.needs) > 0 || sc.name == "contend" {
			require.Positive(t, played[0].Numbers.Faults, "%s broke nothing", sc.name)
		}
		page, err := os.ReadFile(filepath.Join(dir, sc.name+".html"))
		require.NoError(t, err)
		require.Contains(t, string(page), "<h1>redlock drill: "+sc.name+"</h1>")
		require.Contains(t, string(page), ">node 5</text>")
	}
	testReportOf(t, filepath.Join(dir, "majority.jsonl"), filepath.Join(dir, "contend.jsonl"))
}

// testReportOf draws histories that drills have written.
func testReportOf(t *testing.T, paths ...string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "page.html")
	require.Equal(t, exitOK, execute(append([]string{"report", "-o", out, "--title", "Two drills"}, paths...), io.Discard, io.Discard))
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "<h1>Two drills</h1>")
	require.Contains(t, string(page), "client E")

	require.Equal(t, exitUsage, execute([]string{"report", paths[0]}, io.Discard, io.Discard), "no -o")
	require.Equal(t, exitUsage, execute([]string{"report", "-o", out, paths[0] + ".no"}, io.Discard, io.Discard))
}

func TestAReportOfAWrongHistoryFails(t *testing.T) {
	dir := t.TempDir()
	h, err := redlocktest.OpenHistory(filepath.Join(dir, "h"))
	require.NoError(t, err)
	for _, c := range []string{"A", "B"} {
		h.Add(redlocktest.Record{Kind: redlocktest.Acquired, Client: c, Hold: c, Resources: []string{"r"}, Fence: 1, Deadline: h.Now() + time.Minute})
		h.Add(redlocktest.Record{Kind: redlocktest.Checked, Client: c, Hold: c, Resources: []string{"r"}})
	}
	h.Add(redlocktest.Record{Kind: redlocktest.Checked, Client: "A", Hold: "A", Resources: []string{"r"}})
	require.NoError(t, h.Close())
	out := filepath.Join(dir, "page.html")
	require.Equal(t, exitFailed, execute([]string{"report", "-o", out, filepath.Join(dir, "h")}, io.Discard, io.Discard))
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "Violation 1: exclusive")
}

// inProcess runs a drill on embedded nodes with a lock that is not the user's.
func inProcess(t *testing.T, o drillOptions) (code int, out string) {
	t.Helper()
	var b strings.Builder
	err := o.run(t.Context(), &b)
	if err == nil {
		return exitOK, b.String()
	}
	var exit *exitError
	require.ErrorAs(t, err, &exit)
	return exit.code, b.String()
}

// Without its guard the lock lets two clients in; the drill must see that, and not only where it looks for it.
func TestALockThatTrustsForgetfulNodesIsConvicted(t *testing.T) {
	t.Parallel()
	code, out := inProcess(t, drillOptions{names: []string{"restart"}, ttl: time.Second, commands: commands{timeout: time.Minute}, opts: []redlock.Option{redlock.WithRestartGuard(0)}})
	require.Equal(t, exitFailed, code, out)
	require.Contains(t, out, "FAIL ")
	require.Regexp(t, `FAILED +the nodes that have forgotten the lock let nobody in`, out)
	require.Regexp(t, `FAILED +at no moment two clients had the lock`, out)
	require.Contains(t, out, "restart=FAIL")
}

func TestABrokenPromiseFailsTheDrill(t *testing.T) {
	played := outcome{name: "x", results: []result{{"a", "a", true}, {"b", "b", false}}}
	o := drillOptions{}
	err := o.conclude(t.Context(), newTimeline(io.Discard), []outcome{played, {name: "y", results: []result{{"c", "c", true}}}}, 0)
	var exit *exitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitFailed, exit.code)
	played.results = played.results[:1]
	require.NoError(t, o.conclude(t.Context(), newTimeline(io.Discard), []outcome{played}, 0))
}

func TestAScenarioStopsNoMoreThanItSays(t *testing.T) {
	f, err := startEmbedded()
	require.NoError(t, err)
	defer f.close()
	s := newStage(t.Context(), newTimeline(io.Discard), f, time.Second, 0, redlocktest.NewHistory(), "")
	s.most = 2
	require.ErrorContains(t, s.stop(4, 3, 2), "stops 2 at most")
	require.Len(t, s.stopped, 2)
	_, err = f.has(t.Context(), 2, "k")
	require.NoError(t, err)
	require.NotEmpty(t, f.(*embedded).nodes.Node(2).RunID(), "it was stopped all the same")

	// What happened to the drill is no reason to leave nodes stopped.
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	cancel()
	require.NoError(t, s.mend())
	for _, n := range f.(*embedded).nodes.All() {
		require.NotEmpty(t, n.RunID())
	}
}

func TestScenariosAreListedAndDescribed(t *testing.T) {
	for _, args := range [][]string{{"drill", "list"}, {"drill", "--list"}} {
		var out strings.Builder
		require.Equal(t, exitOK, execute(args, &out, io.Discard))
		for _, sc := range scenarios {
			require.Regexp(t, `(?m)^`+sc.name+` +[a-z]`, out.String())
		}
	}
	docs, err := os.ReadFile("../../docs/drills.md")
	require.NoError(t, err)
	for _, sc := range scenarios {
		require.Contains(t, string(docs), "### "+sc.name, "docs/drills.md leaves it out")
	}
}

func TestBadInputOfADrillSaysWhatToDo(t *testing.T) {
	nodes := "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	both := func(c string) string { return "--stop-cmd|" + c + "|--start-cmd|" + c }
	for args, want := range map[string]string{
		"nonsense":                                                         "there are one-node, two-nodes",
		"one-node|--ttl|1ms":                                               "from 500ms to 1m0s",
		"one-node|--node-timeout|1s":                                       "a quarter of --ttl",
		"one-node|--settle|-1s":                                            "must not be negative",
		"one-node|" + both("x {node}"):                                     "name them with --nodes or --nodes-file",
		both("x {node}"):                                                   "name them with --nodes or --nodes-file",
		both("x {node}") + "|--nodes|" + nodes:                             "are for named scenarios",
		"one-node|--nodes|":                                                "the list of nodes is empty",
		"one-node|--nodes|" + nodes:                                        "give it --stop-cmd and --start-cmd",
		"clock|--nodes|" + nodes:                                           "run it without --nodes",
		"flush|--nodes|127.0.0.1:1":                                        "three nodes at least",
		"majority|--nodes|" + nodes + "|" + both("x {node}"):               "--allow-outage permits that",
		"one-node|--nodes|" + nodes + "|--stop-cmd|x {node}":               "belong together",
		"one-node|--nodes|" + nodes + "|" + both("systemctl stop redis"):   "say which with {node}",
		"one-node|--nodes|unix:///a,unix:///b,unix:///c|" + both("{port}"): "has a socket",
		"one-node|--nodes|unix:///a;reboot,unix:///b,unix:///c|" + both("{addr}"): "means something to a shell",
		"one-node|--nodes|redis://:hunter2@a:1":                                   "--nodes-file",
	} {
		var errs strings.Builder
		code := execute(append([]string{"drill"}, strings.Split(args, "|")...), io.Discard, &errs)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs.String(), want, args)
		require.NotContains(t, errs.String(), "hunter2")
	}
}

func TestADrillDoesNotTakeTheNodesInTheEnvironment(t *testing.T) {
	ns := redlocktest.Start(t, 3)
	r := launch(t, ns, []string{"drill", "lost-reply", "--ttl", "500ms"})
	r.code()
	require.Contains(t, r.stdout.String(), "5 nodes, ")
	for _, n := range ns.All() {
		require.Zero(t, n.Requests(""), "it was asked")
	}
}

func TestADrillOnOnesOwnNodesLeavesOutWhatItCannotDo(t *testing.T) {
	t.Parallel()
	ns := redlocktest.Start(t, 3)
	for i, n := range ns.All() {
		n.RequirePassword(fmt.Sprintf("hunter%d", i))
		n.Set("lock:mine", "held", 0)
	}
	file := filepath.Join(t.TempDir(), "nodes")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(ns.URLs(), "\n")), 0o600))
	js := file + ".json"
	r := launch(t, nil, []string{"drill", "paused-holder", "lost-reply", "--ttl", "1500ms", "--node-timeout", "375ms", "--nodes-file", file, "--json", js})
	require.Zero(t, r.code(), r.stdout.String()+r.stderr.String())
	require.NotContains(t, r.stdout.String(), "hunter")

	o := drillOptions{from: sources{file: file}, names: []string{"all"}, ttl: time.Second}
	probe, err := reachOwn(ns.URLs(), o.commands, false)
	require.NoError(t, err)
	defer probe.close()
	left := map[string]bool{}
	for _, sc := range scenarios {
		left[sc.name] = sc.cannot(probe) != ""
	}
	require.Equal(t, map[string]bool{"one-node": true, "two-nodes": true, "majority": true, "restart": true, "rolling": true, "clock": true,
		"flush": false, "frozen-node": false, "frozen-majority": false, "slow-node": false, "partition": false, "lost-reply": false,
		"paused-holder": false, "contend": false}, left)
	for _, n := range ns.All() {
		held, _ := n.Get("lock:mine")
		require.Equal(t, "held", held, "a drill touched a key that is not its own")
		for _, k := range n.Keys() {
			require.True(t, k == "lock:mine" || strings.HasPrefix(k, drillPrefix), k)
		}
	}
}

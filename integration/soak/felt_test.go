package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

func TestAFaultThatCouldNotBeDoneIsNoFault(t *testing.T) {
	r := &run{history: redlocktest.NewHistory(), begun: map[int]time.Duration{}}
	failed := nemesis.Step{ID: 1, Kind: "kill-majority", Nodes: []int{0, 1, 2}}
	done := nemesis.Step{ID: 2, Kind: "freeze", Nodes: []int{3}}
	r.report(failed, nemesis.Begins, nil)
	r.report(failed, nemesis.Failed, errors.New("no"))
	before := r.history.Now()
	r.report(done, nemesis.Begins, nil)
	between := r.history.Now()
	r.report(done, nemesis.Done, nil)
	r.report(done, nemesis.Healed, nil)
	r.report(nemesis.Step{ID: 3}, nemesis.LeftOut, nil)

	records := r.history.Records()
	require.Len(t, records, 2, "of the one that was done")
	require.Equal(t, redlocktest.Fault, records[0].Kind)
	require.GreaterOrEqual(t, records[0].At, before)
	require.LessOrEqual(t, records[0].At, between, "nothing that it causes comes before it")
	s := r.measure(records)
	require.Equal(t, 1, s.Faults)
	require.Equal(t, map[string]int{"freeze": 1}, s.Kinds)
	require.Zero(t, s.Costly)
	require.Len(t, s.NotDone, 1)
	require.Len(t, s.LeftOut, 1)
}

func TestARunWhoseFaultsWereNotFeltFails(t *testing.T) {
	kinds := []string{"cut", "freeze", "kill"}
	for name, row := range map[string]struct {
		done    map[string]int
		notDone int
		says    string
	}{
		"nothing was done":            {map[string]int{}, 0, "not one"},
		"all were":                    {map[string]int{"cut": 30, "freeze": 30, "kill": 36}, 0, ""},
		"one was not":                 {map[string]int{"cut": 1, "freeze": 1}, 1, ""},
		"two of few were not":         {map[string]int{"cut": 2, "freeze": 1, "kill": 1}, 2, "2 of 6"},
		"few of many were not":        {map[string]int{"cut": 30, "freeze": 30, "kill": 35}, 5, ""},
		"more than a few of many":     {map[string]int{"cut": 30, "freeze": 30, "kill": 34}, 6, "6 of 100"},
		"a kind is missing":           {map[string]int{"cut": 3, "freeze": 3}, 0, "kill was never done"},
		"a kind is missing: too soon": {map[string]int{"cut": 3, "freeze": 2}, 0, ""},
	} {
		r := &run{kinds: kinds, notDone: make([]string, row.notDone)}
		s := &summary{Kinds: row.done}
		for _, n := range row.done {
			s.Faults += n
		}
		err := r.checkFelt(s)
		if row.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, row.says, name)
	}
	require.ErrorContains(t, (&run{notMended: []string{"x"}}).checkFelt(&summary{Faults: 1}), "mended")
}

// The nemesis kills clients, and starts others in their place: one that ended by itself before is not forgotten for that.
func TestAProcessThatEndsByItselfIsNotMaskedByAKill(t *testing.T) {
	h := redlocktest.NewHistory()
	m := newMember(assignment{Name: "c0", Lock: "panicking"}, t.TempDir(), h)
	require.NoError(t, m.Start())
	<-m.exited
	require.ErrorIs(t, m.Kill(), os.ErrProcessDone)
	m.base.Lock, m.base.Workers, m.base.Store = "redsync", 1, "127.0.0.1:1"
	require.NoError(t, m.Start())
	require.NoError(t, m.Kill())
	require.NoError(t, m.end())

	require.Len(t, m.crashes(), 1)
	for _, part := range []string{"process 0 of c0", "exit status 2", "panic: this client is broken"} {
		require.Contains(t, m.crashes()[0], part)
	}
	var ends []string
	for _, rec := range h.Records() {
		require.Equal(t, redlocktest.Ended, rec.Kind)
		ends = append(ends, rec.Text)
	}
	require.Equal(t, []string{"crashed", "killed"}, ends)
	require.ErrorContains(t, (&run{crashed: m.crashes()}).checkAlive(), "exit status 2")
	require.NoError(t, (&run{}).checkAlive())
}

// The kill came first, as far as the nemesis knows; how the process ended says more.
func TestAKillThatComesTooLateIsNone(t *testing.T) {
	h := redlocktest.NewHistory()
	m := newMember(assignment{Name: "c0", Lock: "panicking"}, t.TempDir(), h)
	require.NoError(t, m.Start())
	m.mu.Lock() // it is not noticed that it ended
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
		return err != nil || strings.Contains(string(text), ") Z ")
	}, 20*time.Second, time.Millisecond)
	m.asked[syscall.SIGKILL] = true
	m.mu.Unlock()
	<-m.exited
	require.Len(t, m.crashes(), 1)
}

func TestACleanUpThatFailsKeepsNoOtherFromBeingDone(t *testing.T) {
	h := &host{}
	var done []int
	h.Cleanup(func() { done = append(done, 1) })
	h.Cleanup(func() { h.Fatal("second") })
	h.Cleanup(func() { h.Errorf("third"); done = append(done, 3) })
	err := h.end()
	require.Equal(t, []int{3, 1}, done)
	require.ErrorContains(t, err, "second")
	require.ErrorContains(t, err, "third")
}

func TestWhatWasNotLookedAtIsNotCalledKept(t *testing.T) {
	r := &run{o: options{ttl: s, out: t.TempDir()}}
	c := outcome("tidy", "no key stayed", r.checkTidy(nil))
	require.NotEmpty(t, c.NotLookedAt)
	require.Empty(t, c.Broken)
	var out bytes.Buffer
	sum := &summary{Checks: []check{c}}
	sum.print(&out)
	require.Contains(t, out.String(), "not looked at  tidy")
	require.NotContains(t, out.String(), "kept")
	page := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, writePage(page, sum, redlocktest.NewHistory()))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(text), "not looked at: tidy")
	require.NotContains(t, string(text), `<li class="good">`)

	require.NoError(t, os.WriteFile(filepath.Join(r.o.out, keysFile), nil, 0o644))
	require.NotEmpty(t, outcome("tidy", "", r.checkTidy(nil)).NotLookedAt, "no key was ever seen")
}

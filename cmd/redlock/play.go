package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// outcome is what came of one scenario, or of the tour.
type outcome struct {
	name, text string
	took       time.Duration
	results    []result
	nodes      []string // addresses
	history    *redlocktest.History
	leftOut    string // why it was not played
	broken     error  // what the checks found
	err        error  // why it could not be played to its end
}

func (o outcome) kept() bool {
	return !slices.ContainsFunc(o.results, func(r result) bool { return !r.kept })
}

func scenarioNames() []string {
	var names []string
	for _, sc := range scenarios {
		names = append(names, sc.name)
	}
	return names
}

func listScenarios(w io.Writer) error {
	for _, sc := range scenarios {
		fmt.Fprintf(w, "%-16s %s\n", sc.name, sc.text)
	}
	return nil
}

// choose finds the scenarios by their names, in the order of the names; all is all of them.
func choose(names []string) (chosen []scenario, all bool, err error) {
	if slices.Contains(names, "all") {
		return scenarios, true, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(scenarios, func(sc scenario) bool { return sc.name == name })
		if i < 0 {
			return nil, false, exitf(exitUsage, "there is no scenario %q; there are %s, and all", name, strings.Join(scenarioNames(), ", "))
		}
		chosen = append(chosen, scenarios[i])
	}
	return chosen, false, nil
}

// cannot says why a scenario cannot be played on these nodes; "" if it can.
func (sc scenario) cannot(f fleet) string {
	if sc.pauses && !pauses {
		return "this system cannot stop a process and let it go on"
	}
	if f.count() < 3 {
		return "it needs three nodes at least"
	}
	for _, p := range sc.needs {
		if why := f.cannot(p); why != "" {
			return why
		}
	}
	return ""
}

// runScenarios plays the chosen scenarios one after the other.
func (o *drillOptions) runScenarios(ctx context.Context, w io.Writer, urls []string) error {
	chosen, all, err := choose(o.names)
	if err != nil {
		return err
	}
	if len(urls) > 0 {
		probe, err := reachOwn(urls, o.commands, o.outage)
		if err != nil {
			return err
		}
		defer probe.close()
		if err := refuse(chosen, probe, all); err != nil {
			return err
		}
	} else if !o.settleGiven {
		o.settle = 0 // nobody else has locks on nodes inside this process
	}
	dir, err := os.MkdirTemp("", "redlock-drill")
	if err != nil {
		return exitf(exitUndone, "%v", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	line, began := newTimeline(w), time.Now()
	var outcomes []outcome
	for i, sc := range chosen {
		if ctx.Err() != nil {
			break
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		line.text(bold, "%d of %d: %s: %s", i+1, len(chosen), sc.name, sc.text)
		line.start = time.Now()
		out := o.play(ctx, line, sc, urls, filepath.Join(dir, sc.name+".jsonl"), i > 0)
		outcomes = append(outcomes, out)
		if out.err != nil && out.leftOut == "" {
			break
		}
	}
	return o.conclude(ctx, line, outcomes, time.Since(began))
}

// refuse is for scenarios that were asked for by name and cannot be played: a pipeline must not take that for a success.
func refuse(chosen []scenario, f fleet, all bool) error {
	possible := false
	for _, sc := range chosen {
		why := sc.cannot(f)
		possible = possible || why == ""
		if why != "" && !all {
			return exitf(exitUsage, "%s: %s", sc.name, why)
		}
	}
	if !possible {
		return exitf(exitUsage, "no scenario can be played on these nodes: %s", chosen[0].cannot(f))
	}
	return nil
}

// play plays one scenario, with nodes and clients of its own.
func (o *drillOptions) play(ctx context.Context, line *timeline, sc scenario, urls []string, path string, again bool) (out outcome) {
	out = outcome{name: sc.name, text: sc.text}
	began := time.Now()
	defer func() { out.took = time.Since(began) }()

	// 1. The nodes.
	var f fleet
	if len(urls) > 0 {
		f, out.err = reachOwn(urls, o.commands, o.outage)
	} else {
		f, out.err = startEmbedded()
	}
	if out.err != nil {
		return out
	}
	defer f.close()
	if out.leftOut = sc.cannot(f); out.leftOut != "" {
		line.text(plain, "%*s  left out: %s", timeWidth, "", out.leftOut)
		return out
	}
	for i := range f.count() {
		out.nodes = append(out.nodes, f.addr(i))
	}

	// 2. The play.
	history, err := redlocktest.OpenHistory(path)
	if err != nil {
		out.err = err
		return out
	}
	defer func() { _ = history.Close() }()
	s := newStage(ctx, line, f, o.ttl, o.settle, history, path)
	s.opts = o.opts
	if o.timeout != 0 {
		s.nodeTimeout = o.timeout
	}
	if sc.most != nil {
		s.most = sc.most(f.count())
	}
	s.introduce(sc)
	if again && s.most > 0 && s.settle > 0 {
		line.row(time.Now(), dim, "pause", "for "+s.settle.String()+" (--settle), so that other locks can rely on all nodes")
		s.rest(s.settle)
	}
	err = sc.play(s)
	mended := s.mend()
	if err == nil && ctx.Err() == nil {
		s.clean()
	}
	s.close()

	// 3. What the history shows.
	out.history, out.err = redlocktest.ReadHistory(path)
	if !errors.Is(err, errOver) {
		out.err = errors.Join(err, mended, out.err)
	} else {
		out.err = errors.Join(mended, out.err)
	}
	if out.history != nil && ctx.Err() == nil {
		out.broken = s.audit(out.history)
	}
	out.results = s.results
	if out.history != nil && (out.err != nil || !out.kept()) {
		s.blame(out.history)
	}
	fmt.Fprintln(line.w)
	s.marks()
	return out
}

// introduce says what there is.
func (s *stage) introduce(sc scenario) {
	about := ""
	if t := sc.takes(s.fleet.count(), s.ttl); t > 0 {
		if s.most > 0 {
			t += time.Duration(s.fleet.count()) * s.settle
		}
		about = fmt.Sprintf("; takes about %d s", int(t.Seconds()))
	}
	s.line.text(dim, "%*s  %d nodes, %d of them decide; TTL %v%s", timeWidth, "", s.fleet.count(), s.majority(), s.ttl, about)
	s.line.head("seconds", "what", "what the lock says")
}

// clean checks that nothing is left of the locks.
func (s *stage) clean() {
	var left []string
	look := func() bool {
		left = nil
		for i := range s.fleet.count() {
			for _, key := range []string{s.resource, s.resource + "-other", s.resource + "-ready"} {
				switch has, err := s.fleet.has(s.ctx, i, s.prefix()+key); {
				case err != nil:
					left = append(left, fmt.Sprintf("node %d does not say", i+1))
				case has:
					left = append(left, fmt.Sprintf("%s on node %d", key, i+1))
				}
			}
		}
		return len(left) == 0
	}
	clean := s.until(s.ttl+3*time.Second, look)
	if clean {
		s.line.said(time.Now(), green, "clean", "no node has a key of the locks any more")
	} else {
		s.line.said(time.Now(), red, "left behind", "%s", strings.Join(left, ", "))
		for i := range s.fleet.count() {
			s.history.Add(redlocktest.Record{Kind: redlocktest.Left, Node: s.fleet.addr(i), Text: strings.Join(left, ", ")})
		}
	}
	s.promise("clean", "nothing of the locks stays on any node", clean)
}

// audit has the history checked, which knows every client's own times.
func (s *stage) audit(h *redlocktest.History) error {
	var all []error
	check := func(name, text string, err error) {
		all = append(all, err)
		if err != nil {
			s.line.said(time.Now(), red, name, "%s", s.names.Replace(err.Error()))
		}
		s.promise(name, text, err == nil)
	}
	check("exclusive", "at no moment two clients had the lock", h.CheckExclusive())
	check("fences", "every new owner had a higher fence than all before", h.CheckFences())
	check("honest", "every loss was told before another could have the lock, and none without a cause", h.CheckHonest(spareOf(s.ttl)))
	if h.Summary().Wrote > 0 {
		check("store", "the store that checks fences lost no write", h.CheckStore())
	}
	return errors.Join(all...)
}

// blame says so if this machine was too busy to play the scenario in time.
func (s *stage) blame(h *redlocktest.History) {
	const usual = 20 * time.Millisecond // and more: a machine with time to spare is late by one or two
	if late := h.Summary().MaxDelay; late > usual {
		s.line.said(time.Now(), red, "busy machine", "timers were up to %s late here, so nodes seemed to be silent; give the drill more of the machine, or a longer --ttl", ms(late))
	}
}

// oneLine is an error for people, on one line.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(reasonText(err), func(r rune) bool { return r == '\n' }), "; ")
}

// conclude prints the last line, writes the files, and returns the error with the exit code.
func (o *drillOptions) conclude(ctx context.Context, line *timeline, outcomes []outcome, took time.Duration) error {
	kept, all, played, verdicts := 0, 0, 0, ""
	var failed error
	broken := false
	for _, out := range outcomes {
		mark := "pass"
		switch {
		case out.leftOut != "":
			mark = "left-out"
		case !out.kept():
			mark, broken = "FAIL", true
		case out.err != nil:
			mark = "UNDONE"
		}
		if out.leftOut == "" {
			played++
		}
		if out.err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", out.name, out.err)
		}
		verdicts += " " + out.name + "=" + mark
		for _, r := range out.results {
			all++
			if r.kept {
				kept++
			}
		}
	}
	interrupted := ctx.Err() != nil
	verdict, style := "PASS", green
	switch {
	case broken:
		verdict, style = "FAIL", red
	case failed != nil, interrupted:
		verdict, style = "UNDONE", red
	}
	fmt.Fprintln(line.w)
	line.text(style, "%s %d of %d promises kept, %d of %d scenarios played, in %.1f s:%s", verdict, kept, all, played, len(outcomes), took.Seconds(), verdicts)
	if err := o.write(outcomes); err != nil {
		return err
	}
	switch {
	case interrupted:
		text := "the drill was interrupted; what it had stopped is started again"
		if len(o.commands.start) == 0 {
			text = "the drill was interrupted"
		}
		if failed != nil && !errors.Is(failed, context.Canceled) {
			text = "the drill was interrupted; " + oneLine(failed)
		}
		return exitf(exitSignal+int(syscall.SIGINT), "%s", text)
	case broken && failed != nil:
		return exitf(exitFailed, "a promise was broken; and the drill ended early: %s", oneLine(failed))
	case broken:
		return &exitError{code: exitFailed}
	case failed != nil:
		return exitf(exitUndone, "the drill could not be carried out: %s", oneLine(failed))
	}
	return nil
}

// runTour plays the drill without a name.
func (o *drillOptions) runTour(ctx context.Context, w io.Writer, urls []string) error {
	line := newTimeline(w)
	d, err := newTour(ctx, line, urls, o.ttl)
	if err != nil {
		return err
	}
	defer d.close()
	d.introduce()
	d.play()
	if ctx.Err() != nil {
		return exitf(exitSignal+int(syscall.SIGINT), "the drill was interrupted")
	}
	out := outcome{name: "drill", text: "one lock while nodes go away and come back", took: time.Since(line.start), results: d.results, history: d.history}
	for _, n := range d.holder.Stats().Nodes {
		out.nodes = append(out.nodes, n.Node)
	}
	fmt.Fprintln(w)
	all, kept := d.marks()
	fmt.Fprintln(w)
	verdict, style := "PASS", green
	if !out.kept() {
		verdict, style = "FAIL", red
	}
	line.text(style, "%s %d of %d promises kept in %.1f s:%s", verdict, kept, len(out.results), out.took.Seconds(), all)
	if err := o.write([]outcome{out}); err != nil {
		return err
	}
	if !out.kept() {
		return &exitError{code: exitFailed}
	}
	return nil
}

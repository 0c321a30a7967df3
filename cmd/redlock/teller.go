package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// teller prints what a drill sees, and keeps which promises were kept.
type teller struct {
	line     *timeline
	names    *strings.Replacer // addresses to "node 1"
	failures int               // renewals that failed in a row
	results  []result
}

// result is a promise and whether it was kept.
type result struct {
	name, text string
	kept       bool
}

// shortNames turns addresses into "node 1" and so on.
func shortNames(nodes []redlock.NodeStats) *strings.Replacer {
	type pair struct{ address, name string }
	var pairs []pair
	for i, n := range nodes {
		pairs = append(pairs, pair{n.Node, fmt.Sprintf("node %d", i+1)})
	}
	// The longest first: an address may be the beginning of another.
	slices.SortFunc(pairs, func(a, b pair) int { return len(b.address) - len(a.address) })
	var all []string
	for _, p := range pairs {
		all = append(all, "node "+p.address, p.name, p.address, p.name)
	}
	return strings.NewReplacer(all...)
}

// promise notes whether one was kept, and reports it.
func (t *teller) promise(name, text string, kept bool) bool {
	t.results = append(t.results, result{name, text, kept})
	return kept
}

// show prints one event.
func (t *teller) show(ev redlock.Event) {
	say := func(style, what, format string, args ...any) { t.line.said(ev.Time, style, what, format, args...) }
	on := fmt.Sprintf("on %d of %d nodes, margin %d", ev.Granted, ev.Nodes, ev.Margin)
	switch ev.Name {
	case "renewed":
		t.failures = 0
		say(plain, "renewed", "%s, valid for %s", on, ms(ev.Validity))
	case "renewal_failed":
		t.failures++
		if t.failures > 1 {
			say(red, "renewal failed", "again; valid for %s yet", ms(ev.Validity))
			return
		}
		say(red, "renewal failed", "valid for %s yet; %s", ms(ev.Validity), t.reasons(ev.Err))
	case "degraded":
		say(red, "degraded", "%s: %s", on, forgettable(ev.Margin))
	case "restored":
		say(green, "restored", "%s: %s", on, forgettable(ev.Margin))
	case "lost":
		say(red, "LOST", "held for %s; the work that it protects must stop", ms(ev.Hold))
	case "node_lost":
		say(red, t.names.Replace(ev.Node)+" lost", "%s", t.names.Replace(reasonText(ev.Err)))
	case "node_back":
		say(green, t.names.Replace(ev.Node)+" back", "it answers again")
	case "node_unsteady":
		say(red, t.names.Replace(ev.Node)+" unsteady", "%s", t.names.Replace(reasonText(ev.Err)))
	case "node_steady":
		say(green, t.names.Replace(ev.Node)+" steady", "it has its vote again")
	case "clock_stepped":
		say(red, t.names.Replace(ev.Node)+" clock", "%s", t.names.Replace(reasonText(ev.Err)))
	case "warning":
		say(red, "warning", "%s", reasonText(ev.Err))
	}
}

// forgettable is what a margin means.
func forgettable(margin int) string {
	switch margin {
	case 0:
		return "no node may forget it now"
	case 1:
		return "one node may forget it unseen"
	}
	return fmt.Sprintf("%d nodes may forget it unseen", margin)
}

// reasons lists a round's failure node by node.
func (t *teller) reasons(err error) string {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return t.names.Replace(reasonText(err))
	}
	verdict := "no quorum"
	if errors.Is(err, redlock.ErrHeld) {
		verdict = "held by another"
	}
	text := fmt.Sprintf("%s, granted by %d, needed %d:", verdict, q.Granted, q.Need)
	for _, n := range q.Nodes {
		text += "\n  " + t.names.Replace(reasonText(n))
	}
	return text
}

// ms is a duration in whole milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// marks prints each promise, and returns all of them on one line, and how many were kept.
func (t *teller) marks() (all string, kept int) {
	for _, r := range t.results {
		mark, style := "ok", green
		if r.kept {
			kept++
			all += " " + r.name + "=pass"
		} else {
			mark, style = "FAILED", red
			all += " " + r.name + "=FAIL"
		}
		for i, text := range fold(r.text, whatWidth+2+saysWidth) {
			if i > 0 {
				mark = ""
			}
			fmt.Fprintf(t.line.w, "%s  %s\n", t.line.paint(style, fmt.Sprintf("%*s", timeWidth, mark)), text)
		}
	}
	return all, kept
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

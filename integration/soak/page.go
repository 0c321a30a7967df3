package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/seed71a1c8e3/redlock/redlocktest/report"
)

// line is one number of the summary with its name.
type line struct{ Name, Value string }

// lines are the numbers that matter, the same on the page and on the terminal.
func (s *summary) lines() []line {
	ms := func(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
	return []line{
		{"locks handed out", fmt.Sprintf("%d (%.1f per second), %d of them of several resources", s.Acquired, s.PerSecond, s.Multi)},
		{"calls that got none", fmt.Sprint(s.Failed)},
		{"faults", fmt.Sprintf("%d of %d kinds, %d of them took a majority away", s.Faults, len(s.Kinds), s.Costly)},
		{"faults that were not done", fmt.Sprintf("%d could not be brought about, %d did not fit any more", len(s.NotDone), len(s.LeftOut))},
		{"requests sent again", fmt.Sprint(s.Repeated)},
		{"overlapping holds", fmt.Sprintf("%d, together %v", s.Overlaps, s.OverlapTime.Round(time.Millisecond))},
		{"writes", fmt.Sprintf("%d taken, %d refused for their fence, %d unknown", s.Writes, s.Refused, s.UnknownEnd)},
		{"updates lost in the store", fmt.Sprint(s.LostUpdates)},
		{"losses", fmt.Sprintf("%d (%d only by a process that stood still), and %d ends that were agreed upon", s.Losses, s.ByStalls, s.Agreed)},
		{"told by the deadline", fmt.Sprintf("%d; after it %d, never %d", s.ToldEarly, s.ToldLate, s.NeverTold)},
		{"latest after the deadline", fmt.Sprintf("%v by a process that ran (median %v, 99 %% within %v), %v by one that stood still meanwhile",
			ms(s.MaxLate), ms(s.MedianLate), ms(s.P99Late), ms(s.MaxLateAny))},
		{"delay of timers", fmt.Sprintf("median %v, 99 %% within %v, worst %v (the worst of each second)", ms(s.MedianDelay), ms(s.P99Delay), ms(s.MaxDelay))},
		{"no client got a free lock", fmt.Sprintf("for %v in all, at most %v at once, of %v", s.Away.Round(time.Millisecond), s.LongestAway.Round(time.Millisecond), s.Span.Round(time.Second))},
		{"client processes", fmt.Sprint(s.Processes)},
		{"keys left behind", fmt.Sprint(s.Left)},
	}
}

func (s *summary) kinds() (all []line) {
	for k, n := range s.Kinds {
		all = append(all, line{k, fmt.Sprint(n)})
	}
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (s *summary) print(out io.Writer) {
	for _, l := range s.lines() {
		fmt.Fprintf(out, "%-28s %s\n", l.Name, l.Value)
	}
	for _, k := range s.kinds() {
		fmt.Fprintf(out, "    %-24s %s\n", k.Name, k.Value)
	}
	for _, f := range s.NotDone {
		fmt.Fprintf(out, "not done: %s\n", f)
	}
	for _, f := range s.NotMended {
		fmt.Fprintf(out, "not mended: %s\n", f)
	}
	for _, f := range s.LeftOut {
		fmt.Fprintf(out, "left out: %s\n", f)
	}
	for _, c := range s.Checks {
		switch {
		case c.NotLookedAt != "":
			fmt.Fprintf(out, "not looked at  %s: %s: %s\n", c.Name, c.Claim, c.NotLookedAt)
		case c.Broken == "":
			fmt.Fprintf(out, "kept    %s: %s\n", c.Name, c.Claim)
		default:
			fmt.Fprintf(out, "BROKEN  %s: %s\n%s\n", c.Name, c.Claim, shortened(c.Broken))
		}
	}
}

// shortened keeps a terminal readable; summary.json has all of it.
func shortened(text string) string {
	const enough = 6000
	if len(text) > enough {
		return text[:enough] + "\n... (all of it is in summary.json)"
	}
	return text
}

// writePage writes the summary, with a picture of the whole run, as a page that needs nothing else.
func writePage(path string, s *summary, all *redlocktest.History) error {
	opts := report.Options{
		Title: fmt.Sprintf("Soak of %s, seed %d", s.Lock, s.Seed),
		Text: fmt.Sprintf("%d client processes with %d workers each on five servers (%s), TTL and guard %v, %v of faults.",
			s.Clients, s.Workers, s.Provider, s.TTL, s.Duration),
	}
	for _, l := range append(s.lines(), s.kinds()...) {
		opts.Facts = append(opts.Facts, report.Fact(l))
	}
	for _, c := range s.Checks {
		if c.NotLookedAt != "" {
			opts.Facts = append(opts.Facts, report.Fact{Name: "not looked at: " + c.Name, Value: c.Claim + ": " + c.NotLookedAt})
			continue
		}
		opts.Promises = append(opts.Promises, report.Promise{Text: c.Name + ": " + c.Claim, Kept: c.Broken == ""})
		opts.Err = errors.Join(opts.Err, c.err)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(report.Write(file, all, opts), file.Close())
}

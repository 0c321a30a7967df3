package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/seed71a1c8e3/redlock/redlocktest/report"
	"github.com/spf13/cobra"
)

// The files that a drill writes.

// playedJSON is an outcome in JSON. Durations are seconds.
type playedJSON struct {
	Name     string               `json:"name"`
	Verdict  string               `json:"verdict"` // pass, fail, left out, undone
	Reason   string               `json:"reason,omitempty"`
	Seconds  float64              `json:"seconds"`
	Promises []promised           `json:"promises,omitempty"`
	Numbers  *redlocktest.Summary `json:"numbers,omitempty"`
}

type promised struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Kept bool   `json:"kept"`
}

func summed(out outcome) playedJSON {
	v := playedJSON{Name: out.name, Verdict: "pass", Seconds: out.took.Round(time.Millisecond).Seconds()}
	switch {
	case out.leftOut != "":
		v.Verdict, v.Reason = "left out", out.leftOut
	case !out.kept():
		v.Verdict = "fail"
	case out.err != nil:
		v.Verdict = "undone"
	}
	if out.err != nil {
		v.Reason = reasonText(out.err)
	}
	for _, r := range out.results {
		v.Promises = append(v.Promises, promised{r.name, r.text, r.kept})
	}
	if out.history != nil {
		sum := out.history.Summary()
		v.Numbers = &sum
	}
	return v
}

// write writes the files that were asked for.
func (o *drillOptions) write(outcomes []outcome) error {
	if o.report != "" {
		if err := o.writeReport(outcomes); err != nil {
			return exitf(exitUndone, "--report: %v", err)
		}
	}
	if o.json != "" {
		if err := o.writeJSON(outcomes); err != nil {
			return exitf(exitUndone, "--json: %v", err)
		}
	}
	if o.history != "" {
		if err := o.writeHistory(outcomes); err != nil {
			return exitf(exitUndone, "--history: %v", err)
		}
	}
	return nil
}

// writeReport draws all scenarios on one page.
func (o *drillOptions) writeReport(outcomes []outcome) error {
	var sections []report.Section
	for _, out := range outcomes {
		if out.history == nil {
			continue
		}
		opts := report.Options{Title: out.name, Text: out.text, Names: map[string]string{}, Err: out.broken}
		for i, addr := range out.nodes {
			opts.Names[addr] = fmt.Sprintf("node %d", i+1)
		}
		for _, r := range out.results {
			opts.Promises = append(opts.Promises, report.Promise{Text: r.text, Kept: r.kept})
		}
		sections = append(sections, report.Section{History: out.history, Options: opts})
	}
	title := "redlock drill"
	if len(sections) == 1 && len(o.names) > 0 {
		title += ": " + sections[0].Options.Title
	}
	return writeFile(o.report, func(w io.Writer) error {
		return report.WriteAll(w, title, fmt.Sprintf("What a lock does while nodes go away. TTL %v. %s.", o.ttl, time.Now().Format("2 January 2006, 15:04")), sections)
	})
}

// writeFile makes a file of what write writes.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return errors.Join(write(w), w.Flush(), f.Close())
}

// newReport is the command that draws histories.
func newReport() *cobra.Command {
	var out, title string
	cmd := &cobra.Command{
		Use:   "report HISTORY... -o FILE",
		Short: "Draw recorded histories as a web page",
		Long: `Report draws histories, which a drill writes with --history and a test with redlocktest.OpenHistory, as one
web page that needs no network. It checks them, too: what is wrong stands at the top, and the exit code is 1.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, paths []string) error {
			if out == "" {
				return exitf(exitUsage, "where to? -o FILE")
			}
			h, err := redlocktest.ReadHistory(paths...)
			if err != nil {
				return exitf(exitUsage, "%v", err)
			}
			broken := errors.Join(h.CheckExclusive(), h.CheckFences(), h.CheckStore(), h.CheckClean())
			err = writeFile(out, func(w io.Writer) error { return report.Write(w, h, report.Options{Title: title, Err: broken}) })
			if err != nil {
				return exitf(exitUndone, "%v", err)
			}
			if broken != nil {
				return exitf(exitFailed, "the history is wrong; see %s", out)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the page to `FILE`")
	cmd.Flags().StringVar(&title, "title", "History", "the page's heading")
	return cmd
}

func (o *drillOptions) writeJSON(outcomes []outcome) error {
	all := struct {
		Scenarios []playedJSON `json:"scenarios"`
	}{}
	for _, out := range outcomes {
		all.Scenarios = append(all.Scenarios, summed(out))
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(text, '\n'), 0o644)
}

// writeHistory writes the records of all scenarios one after the other, in the order of time.
func (o *drillOptions) writeHistory(outcomes []outcome) error {
	return writeFile(o.history, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		for _, out := range outcomes {
			if out.history == nil {
				continue
			}
			for _, r := range out.history.Records() {
				if err := lines.Encode(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
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
	f, err := os.Create(o.history)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := json.NewEncoder(f)
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
	return f.Close()
}

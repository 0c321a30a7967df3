// Command model checks the lock's protocols by walking through every order in which their steps can happen, for small
// numbers of nodes and clients. Each run either must hold, or breaks one rule of the protocol on purpose and must then
// be convicted: a checker that finds nothing wrong proves something only if it finds what is known to be wrong.
//
//	go run ./internal/model                       all runs
//	go run ./internal/model -run '^fence' -trace  some of them, with the trace of each conviction
//	go run ./internal/model -states 100000000     as far as memory allows
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"
)

// run is one question put to the checker, with the answer we expect.
type run struct {
	name      string                 // what -run matches; begins with the model's name
	says      string                 // the claim, in one line
	convicted bool                   // a promise is expected to break
	do        func(limit int) result // limit bounds the states kept
}

// runs are all of them, in the order in which they are printed.
func runs() []run { return slices.Concat(fenceRuns(), timeRuns(), markerRuns()) }

func main() {
	states := flag.Int("states", 1_000_000, "most states kept in one run")
	pattern := flag.String("run", "", "only runs whose name matches this expression")
	traces := flag.Bool("trace", false, "print the shortest trace of each conviction")
	flag.Parse()
	only, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if surprises := walk(os.Stdout, runs(), only, *states, *traces); surprises > 0 {
		os.Exit(1)
	}
}

// walk does the runs that only matches, prints a line for each, and counts those that ended otherwise than expected.
func walk(w io.Writer, all []run, only *regexp.Regexp, limit int, traces bool) (surprises int) {
	for _, r := range all {
		if !only.MatchString(r.name) {
			continue
		}
		got := r.do(limit)
		verdict := "as expected"
		if !r.expected(got) {
			verdict = "NOT as expected"
			surprises++
		}
		fmt.Fprintf(w, "%-34s %9d states %3d deep  %-9s %8s  %-9s %s: %s\n", r.name, got.states, got.depth,
			got.extent(), got.took.Round(10*time.Millisecond), got.verdict(), verdict, r.says)
		if traces || !r.expected(got) {
			for _, step := range got.trace {
				fmt.Fprintln(w, "    "+step)
			}
			if got.wrong != "" {
				fmt.Fprintln(w, "    so: "+got.wrong)
			}
		}
	}
	return surprises
}

func (r run) expected(got result) bool { return r.convicted == (got.wrong != "") }

func (r result) verdict() string {
	if r.wrong != "" {
		return "convicted"
	}
	return "holds"
}

// extent says how much of the model was seen: all of it, up to the limit, or up to the first broken promise.
func (r result) extent() string {
	switch {
	case r.wrong != "":
		return "stopped"
	case r.complete:
		return "complete"
	}
	return "bounded"
}

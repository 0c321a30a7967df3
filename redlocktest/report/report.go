// Package report draws a history of locks as one web page that needs nothing
// else: no network, no scripts, no fonts. It can be read on a phone, printed and
// sent along.
//
//	f, err := os.Create("report.html")
//	...
//	err = report.Write(f, history, report.Options{Title: "Last night", Err: history.Check()})
//
// Over time it shows each node (what was done to it, whether clients could reach
// it and let it vote) and each client (when it held a lock, how much of the
// lock's life was left at every moment, renewals, losses, tries without success,
// writes). What is too close to be seen apart is drawn together, so an hour of a
// hundred thousand records stays readable and small; around each violation, and
// around the first losses of a long history, a piece is drawn larger.
package report

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// Options say what a history cannot. All may be left zero.
type Options struct {
	Title    string            // the heading; default "History"
	Text     string            // a sentence below it
	Promises []Promise         // listed with a mark
	Names    map[string]string // short names of nodes, by the Node of the records
	Err      error             // of the history's checks: each *redlocktest.Violation in it is told and drawn
	Facts    []Fact            // further numbers
	Zoom     []Window          // pieces to draw larger, besides those that are chosen anyway
}

// Promise is something that had to hold, and whether it did.
type Promise struct {
	Text string
	Kept bool
}

// Fact is a number with its name.
type Fact struct{ Name, Value string }

// Window is a piece of time to draw larger, on the history's clock.
type Window struct {
	Title    string
	From, To time.Duration
}

// Section is one history among several on a page.
type Section struct {
	History *redlocktest.History
	Options Options
}

// Write writes a page about one history. The error is w's, or that of a history
// whose file cannot be read.
func Write(w io.Writer, h *redlocktest.History, opts Options) error {
	return WriteAll(w, cmp.Or(opts.Title, "History"), "", []Section{{h, opts}})
}

//go:embed page.css
var css string

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Title, Text string
	CSS         template.CSS
	Several     bool
	AllKept     bool
	Kept, All   int
	Sections    []section
}

type section struct {
	ID, Title, Text string
	Promises        []Promise
	Broken          bool
	Violations      []string
	Facts           []Fact
	Pictures        []drawn
	Events          []event
	More            int // events that are not listed
}

type drawn struct {
	Title   string
	Names   []name
	SVG     template.HTML
	Scrolls bool
}

// name is a row's name, over the picture: it stays where it is when the picture is scrolled.
type name struct {
	Name, Under string
	Style       template.CSS
}

// WriteAll writes a page about several histories, one below the other.
func WriteAll(w io.Writer, title, text string, sections []Section) error {
	p := page{Title: title, Text: text, CSS: template.CSS(css), Several: len(sections) > 1, AllKept: true}
	for i, s := range sections {
		sec, err := compose(fmt.Sprintf("s%d", i+1), s)
		if err != nil {
			return err
		}
		for _, promise := range sec.Promises {
			p.All++
			if promise.Kept {
				p.Kept++
			}
		}
		p.AllKept = p.AllKept && !sec.Broken
		p.Sections = append(p.Sections, sec)
	}
	return pageTemplate.Execute(w, p)
}

// compose makes one section.
func compose(id string, in Section) (section, error) {
	o := in.Options
	s := section{ID: id, Title: cmp.Or(o.Title, "History"), Text: o.Text, Promises: o.Promises}
	if err := in.History.Err(); err != nil {
		return s, err
	}
	records := in.History.Records()
	st := read(records, o.Names)
	violations := violationsOf(o.Err)
	s.Broken = o.Err != nil || slices.ContainsFunc(o.Promises, func(p Promise) bool { return !p.Kept })
	for _, v := range violations {
		s.Violations = append(s.Violations, nameAll(o.Names, strings.TrimSpace(v.Error())))
	}
	if o.Err != nil && len(violations) == 0 {
		s.Violations = []string{nameAll(o.Names, o.Err.Error())}
	}
	s.Facts = append(factsOf(in.History.Summary()), o.Facts...)
	if len(records) == 0 {
		return s, nil
	}
	all := Window{From: st.from, To: st.to + (st.to-st.from)/60} // room for what comes last
	for i, win := range append([]Window{all}, windows(st, o, violations)...) {
		title := cmp.Or(win.Title, "All of it")
		p := draw(st, o.Names, win.From, win.To, fmt.Sprintf("%s-p%d", id, i+1), s.Title+": "+title)
		d := drawn{Title: title, SVG: template.HTML(p.String())}
		for _, r := range p.rows {
			d.Names = append(d.Names, name{r.name, r.under, template.CSS(fmt.Sprintf("top:%spx;height:%spx", num(r.y), num(r.height)))})
		}
		s.Pictures = append(s.Pictures, d)
	}
	if len(s.Pictures) == 1 {
		s.Pictures[0].Title = ""
	}
	s.Events, s.More = eventsOf(records, st.from, o.Names)
	return s, nil
}

// violationsOf finds all violations in an error, also in one that joins several.
func violationsOf(err error) (found []*redlocktest.Violation) {
	var joined interface{ Unwrap() []error }
	if v := (*redlocktest.Violation)(nil); errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			found = append(found, violationsOf(e)...)
		}
	} else if errors.As(err, &v) {
		found = append(found, v)
	}
	return found
}

func nameAll(names map[string]string, text string) string {
	for _, node := range slices.Backward(slices.SortedFunc(mapKeys(names), func(a, b string) int { return cmp.Compare(len(a), len(b)) })) {
		text = strings.ReplaceAll(text, node, names[node])
	}
	return text
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// factsOf picks what people ask for.
func factsOf(s redlocktest.Summary) []Fact {
	facts := []Fact{
		{"time", span(s.Span)},
		{"locks acquired", fmt.Sprint(s.Acquired)},
		{"tries without success", fmt.Sprint(s.Failed)},
		{"renewals seen", fmt.Sprint(s.Extended)},
		{"losses told", fmt.Sprint(s.Lost)},
		{"faults", fmt.Sprint(s.Faults)},
	}
	add := func(when bool, name, value string) {
		if when {
			facts = append(facts, Fact{name, value})
		}
	}
	add(s.Faults > 0, "of these kinds", kinds(s.FaultsBy))
	add(s.Lost > 0, "latest loss told after its deadline", span(s.MaxLateness))
	add(s.Acquired > 0, "longest wait for a lock", span(s.LongestWait))
	add(s.Acquired > 0, "longest hold", span(s.LongestHold))
	add(s.Wrote+s.Refused+s.Unknown > 0, "writes to the store", fmt.Sprintf("%d taken, %d refused, %d unknown", s.Wrote, s.Refused, s.Unknown))
	add(s.MaxDelay > 0, "worst delay of this machine's timers", span(s.MaxDelay))
	add(s.LongestStill > 0, "longest time that a process stood still", span(s.LongestStill))
	add(s.Left > 0, "keys left behind", fmt.Sprint(s.Left))
	return facts
}

func kinds(by map[string]int) string {
	var all []string
	for k, n := range by {
		all = append(all, fmt.Sprintf("%s %d", k, n))
	}
	slices.Sort(all)
	if len(all) > 20 {
		all = append(all[:20], "…")
	}
	return strings.Join(all, ", ")
}

package redlocktest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Rules that a history is checked for.
const (
	RuleExclusive = "exclusive" // no two holds of one resource at the same time
	RuleFences    = "fences"    // fences rise
	RuleStore     = "store"     // the store lost no update
	RuleHonest    = "honest"    // losses are told in time, and only where there was a reason
	RuleClean     = "clean"     // nothing is left on the nodes
)

// Violation is a rule that was broken, with the shortest piece of the history
// that shows it. The checks return one as their error; find it with errors.As.
type Violation struct {
	Rule    string
	Text    string   // what is wrong, in a sentence
	Records []Record // what shows it, in the order of At; without any of them it would not
	More    int      // how many further violations of the rule there are
}

// Error is the sentence, and the records one per line with times relative to the first.
func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlocktest: %s: %s", v.Rule, v.Text)
	if v.More > 0 {
		fmt.Fprintf(&b, " (and %d more)", v.More)
	}
	b.WriteByte('\n')
	if len(v.Records) == 0 {
		return b.String()
	}
	zero := v.Records[0].At
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range v.Records {
		_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", since(zero, r.At), cmp.Or(r.Client, r.Node, "-"), r.Kind, r.describe(zero))
	}
	_ = table.Flush()
	return b.String()
}

// since is at as seen from zero.
func since(zero, at time.Duration) string {
	if at < zero {
		return (at - zero).String()
	}
	return "+" + (at - zero).String()
}

// describe is what stands behind a record's kind.
func (r Record) describe(zero time.Duration) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if len(r.Resources) > 0 {
		add("%s", quoted(r.Resources))
	}
	if r.Fence > 0 {
		add("fence %d", r.Fence)
	}
	if r.Kind == Wrote {
		add("value %d", r.Value)
	}
	if r.Client != "" && r.Node != "" {
		add("node %s", r.Node)
	}
	if r.Began > 0 {
		add("since %s", since(zero, r.Began))
	}
	if r.Deadline > 0 {
		add("valid until %s", since(zero, r.Deadline))
	}
	if r.Kind == Delayed {
		add("%v late", r.Late)
	}
	if r.Text != "" {
		add("%s", r.Text)
	}
	return strings.Join(parts, ", ")
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = strconv.Quote(name)
	}
	return strings.Join(all, " ")
}

// CheckOption configures a check.
type CheckOption func(*checkOptions)

type checkOptions struct {
	slack  time.Duration
	window time.Duration // 0: by the hold
	nodes  int           // 0: unknown
	finals map[string]int64
}

// WithSlack sets how late a loss may be told for no measured reason. Default
// 50 ms; 0 is right in virtual time.
func WithSlack(d time.Duration) CheckOption { return func(o *checkOptions) { o.slack = d } }

// WithCauseWindow sets for how long after it was mended a fault may still cost a
// lock: the TTL plus the restart guard. Default two and a half times the longest
// validity that the lock had, which covers a guard of one TTL.
func WithCauseWindow(d time.Duration) CheckOption { return func(o *checkOptions) { o.window = d } }

// WithNodes says how many nodes there are. Then faults of nodes, and of a client's
// links to them (with Node and Client both), explain a loss only where so many were
// broken at the same moment that no majority was left. A node that came back empty
// gives no vote until its restart guard is over: say that it is [Healed] then.
// Default: a fault of any node explains it.
func WithNodes(n int) CheckOption { return func(o *checkOptions) { o.nodes = n } }

// WithFinal says what the store holds for resource at the end, when nobody writes
// any more: it must be what the last write found.
func WithFinal(resource string, value int64) CheckOption {
	return func(o *checkOptions) { o.finals[resource] = value }
}

// checked is a history made ready for the checks.
type checked struct {
	checkOptions
	records []Record
	spans   []*span
}

func (h *History) prepare(opts []CheckOption) (*checked, error) {
	records, err := h.load()
	if err != nil {
		return nil, err
	}
	c := &checked{records: records, spans: spansOf(records), checkOptions: checkOptions{
		slack: 50 * time.Millisecond, finals: map[string]int64{}}}
	for _, o := range opts {
		o(&c.checkOptions)
	}
	return c, nil
}

// Check runs all checks and joins what they find. Call it when nothing is
// recorded any more. It takes a few seconds for a million records.
func (h *History) Check(opts ...CheckOption) error {
	return h.run(opts, (*checked).exclusive, (*checked).fences, (*checked).store, (*checked).honest, (*checked).clean)
}

// CheckExclusive checks that no two holds of one resource overlap. A hold begins
// when Lock returned. It ends when Unlock was called, at its last known deadline,
// when its loss was told or when its process ended, whichever was first; where
// no end was recorded, with the last record of its client, of whatever kind, if
// that is before the deadline. A client that was killed and started again needs an
// [Ended] record in between, or it is taken to hold what it held before. If the
// lock was seen valid after all that, it lasted until then.
func (h *History) CheckExclusive() error { return h.run(nil, (*checked).exclusive) }

// CheckFences checks, resource by resource, that there is an order of all
// acquisitions and releases, each at some moment of its call, in which a mutex
// has one holder at a time and each holder a higher fence than the one before. A
// release that nobody confirmed may have happened at any later moment; a call
// that failed may or may not have had the lock for a while. Where one hold of a
// resource has a fence, all need one. It takes a time in proportion to the number
// of holds, also where many have the same times, as in virtual time.
func (h *History) CheckFences() error { return h.run(nil, (*checked).fences) }

// CheckStore checks what the fenced store answered: each [Wrote] value is one
// more than the one before, in the order of fences and of time. A write with an
// [Unknown] outcome may or may not be among them.
func (h *History) CheckStore(opts ...CheckOption) error { return h.run(opts, (*checked).store) }

// CheckHonest checks that each loss was told by the lock's deadline and that none
// was told without a reason.
//
// In time is: slack after the deadline at most, not counting the time in which
// the process was [Frozen], nor as much again as its timers were [Delayed] around
// then. A holder that is there that long after its deadline and was told nothing
// is a violation too, also if it gives the lock back then: until Unlock is called,
// or until the last record of its process.
//
// A lock that calls itself valid after its deadline breaks the rule too: after the
// one recorded with [Checked]; where none is, after the last known one by more than
// one further validity, for a renewal that nobody recorded, and what is excused
// above. By so much a [Lost] record, too, may name a later deadline than was known.
//
// A reason is a [Fault], on a node or on that client, that was there or was healed
// no longer ago than [WithCauseWindow]; or that the process itself stood still
// for a quarter of the lock's validity or more. The end of a lease and of the
// longest hold, at the deadline and not before, need no other reason.
func (h *History) CheckHonest(slack time.Duration, opts ...CheckOption) error {
	return h.run(append([]CheckOption{WithSlack(slack)}, opts...), (*checked).honest)
}

// CheckClean checks that nothing was [Left]; see [History.LookForLeft].
func (h *History) CheckClean() error { return h.run(nil, (*checked).clean) }

func (h *History) run(opts []CheckOption, checks ...func(*checked) *Violation) error {
	c, err := h.prepare(opts)
	if err != nil {
		return err
	}
	var found []error
	for _, check := range checks {
		if v := check(c); v != nil {
			slices.SortStableFunc(v.Records, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
			found = append(found, v)
		}
	}
	return errors.Join(found...)
}

// byResource are the spans of each resource, in the order of their acquisition,
// and the names of the resources in order, so that results are always the same.
func (c *checked) byResource() (map[string][]*span, []string) {
	all := map[string][]*span{}
	var names []string
	for _, s := range c.spans {
		for _, name := range s.acquired.Resources {
			if all[name] == nil {
				names = append(names, name)
			}
			all[name] = append(all[name], s)
		}
	}
	slices.Sort(names)
	return all, names
}

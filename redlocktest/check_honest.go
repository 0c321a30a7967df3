package redlocktest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// honest checks all losses, in the order of their acquisition.
func (c *checked) honest() *Violation {
	causes := newCauses(c)
	var first *Violation
	count := 0
	for _, s := range c.spans {
		v := c.untold(s, causes)
		if v == nil {
			v = c.believed(s, causes)
		}
		if v == nil && s.loss.Kind != "" {
			if v = c.late(s); v == nil {
				v = c.groundless(s, causes)
			}
		}
		if v == nil {
			continue
		}
		if count++; first == nil {
			first = v
		}
	}
	if first != nil {
		first.More = count - 1
	}
	return first
}

// late is a loss that was told after the deadline.
func (c *checked) late(s *span) *Violation {
	over := s.lateness() - s.delay
	if over <= c.slack {
		return nil
	}
	text := fmt.Sprintf("%s was told of its loss of %s %v after the deadline", s.acquired.Client, quoted(s.acquired.Resources), s.loss.At-s.due())
	if excused := s.frozen + s.delay; excused > 0 {
		text += fmt.Sprintf(", of which %v are excused", excused)
	}
	return &Violation{Rule: RuleHonest, Text: text, Records: s.lossRecords()}
}

// lossRecords are the acquisition, what gave the last deadline, and the loss.
func (s *span) lossRecords() []Record {
	all := []Record{s.acquired}
	if s.bound.Kind != Acquired && s.bound.Deadline > s.loss.Deadline {
		all = append(all, s.bound)
	}
	return append(all, s.loss)
}

// untold is a holder that goes on after its deadline and was told nothing. One
// that gives the lock back without having been told went on until then; one whose
// process ended, until the last record of that.
func (c *checked) untold(s *span, causes *causes) *Violation {
	if s.loss.Kind != "" || s.bound.Kind == "" {
		return nil
	}
	last := s.alive
	if s.finish.Kind == Releasing {
		last = s.finish
	}
	due := s.due()
	if last.At-due <= c.slack {
		return nil
	}
	frozen, delay := excuse(causes.still[s.acquired.Client], due, last.At)
	if last.At-due-frozen-delay <= c.slack {
		return nil
	}
	records := []Record{s.acquired}
	if s.bound.Kind != Acquired {
		records = append(records, s.bound)
	}
	return &Violation{Rule: RuleHonest, Records: append(records, last),
		Text: fmt.Sprintf("%s was never told that its lock on %s is over, and was there %v after the deadline",
			s.acquired.Client, quoted(s.acquired.Resources), last.At-due)}
}

// believed is a lock that called itself valid after its deadline, by the deadline
// that was asked for at the same time, or else long after any that it can have had.
func (c *checked) believed(s *span, causes *causes) *Violation {
	r, deadline := s.expired, s.expired.Deadline
	records := []Record{s.acquired}
	if r.Kind == "" {
		r, deadline = s.unsure, s.reach()
		frozen, delay := excuse(causes.still[s.acquired.Client], deadline, r.At)
		if r.Kind == "" || r.At-deadline-frozen-delay <= c.slack {
			return nil
		}
		if s.bound.Kind != Acquired {
			records = append(records, s.bound)
		}
	}
	return &Violation{Rule: RuleHonest, Records: append(records, r), Text: fmt.Sprintf("the lock of %s on %s called itself valid %v after the deadline",
		s.acquired.Client, quoted(s.acquired.Resources), r.At-deadline)}
}

// agreed says whether a loss is the end that was agreed upon when the lock was
// taken: that of its lease or its longest hold, which is its deadline, not before.
func (s *span) agreed() bool {
	return (strings.HasPrefix(s.loss.Text, LeaseOver) || strings.HasPrefix(s.loss.Text, MaxHoldOver)) && s.loss.At >= s.due()-grain
}

// groundless is a loss without a reason.
func (c *checked) groundless(s *span, causes *causes) *Violation {
	if s.agreed() {
		return nil
	}
	window := c.window
	if window == 0 {
		window = s.validity * 5 / 2
	}
	to := s.loss.At
	from := min(to, s.due()) - window
	if causes.explain(s.acquired.Client, from, to, c.nodes) || causes.stoodStill(s.acquired.Client, from, to, s.validity/4) {
		return nil
	}
	text := fmt.Sprintf("%s lost %s without a reason: no fault from %v before to then", s.acquired.Client, quoted(s.acquired.Resources), window)
	if c.nodes > 0 {
		text += fmt.Sprintf(" that left no majority of %d nodes", c.nodes)
	}
	return &Violation{Rule: RuleHonest, Text: text, Records: s.lossRecords()}
}

// causes is what went wrong in a run.
type causes struct {
	faults  []trouble           // in the order of their begin
	lasting []time.Duration     // the latest end of faults up to each
	still   map[string][]Record // Frozen and Delayed, by client
}

// trouble is a fault from its begin until it was healed.
type trouble struct {
	Record
	until time.Duration
}

func newCauses(c *checked) *causes {
	type name struct{ client, node, text string }
	ca := &causes{still: stillBy(c.records)}
	open := map[name][]int{}
	for _, r := range c.records {
		key := name{r.Client, r.Node, r.Text}
		switch r.Kind {
		case Fault:
			open[key] = append(open[key], len(ca.faults))
			ca.faults = append(ca.faults, trouble{r, never})
		case Healed:
			for _, i := range open[key] {
				ca.faults[i].until = r.At
			}
			delete(open, key)
		}
	}
	var latest time.Duration
	for _, f := range ca.faults {
		latest = max(latest, f.until)
		ca.lasting = append(ca.lasting, latest)
	}
	return ca
}

// explain says whether faults that were there at some moment from from to to can
// have cost client a lock.
func (ca *causes) explain(client string, from, to time.Duration, nodes int) bool {
	begun, _ := slices.BinarySearchFunc(ca.faults, to+1, func(f trouble, at time.Duration) int { return cmp.Compare(f.At, at) })
	var broken []trouble // of nodes, while from to to
	for i := begun - 1; i >= 0 && ca.lasting[i] >= from; i-- {
		f := ca.faults[i]
		switch {
		case f.until < from:
		case f.Client != "" && f.Client != client:
		case f.Node == "" || nodes == 0:
			return true
		default: // a node, or the client's link to it
			f.At = max(f.At, from)
			broken = append(broken, f)
		}
	}
	return noMajority(broken, nodes)
}

// noMajority says whether at some moment so many nodes were broken that no majority
// was left. If there is such a moment, one of the faults begins there.
func noMajority(broken []trouble, nodes int) bool {
	for _, begun := range broken {
		names := map[string]bool{}
		for _, f := range broken {
			if f.At <= begun.At && begun.At <= f.until {
				names[f.Node] = true
			}
		}
		if len(names) > nodes-(nodes/2+1) {
			return true
		}
	}
	return false
}

// stoodStill says whether the client's process stood still for long.
func (ca *causes) stoodStill(client string, from, to, long time.Duration) bool {
	for _, r := range overlapping(ca.still[client], from, to) {
		if r.Kind == Frozen && r.At-r.Began >= long || r.Kind == Delayed && r.Late >= long {
			return true
		}
	}
	return false
}

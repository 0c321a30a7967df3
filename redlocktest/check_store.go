package redlocktest

import (
	"cmp"
	"fmt"
	"slices"
)

// store checks each counter by the values that its writers were told.
func (c *checked) store() *Violation {
	wrote, unknown := map[string][]Record{}, map[string][]Record{}
	var names []string
	for _, r := range c.records {
		if r.Kind != Wrote && r.Kind != Unknown {
			continue
		}
		for _, name := range r.Resources {
			if wrote[name] == nil && unknown[name] == nil {
				names = append(names, name)
			}
			if r.Kind == Wrote {
				wrote[name] = append(wrote[name], r)
			} else {
				unknown[name] = append(unknown[name], r)
			}
		}
	}
	slices.Sort(names)
	var first *Violation
	count := 0
	for _, name := range names {
		final, known := c.finals[name]
		if v := storeOf(name, wrote[name], unknown[name], final, known); v != nil {
			if count++; first == nil {
				first = v
			}
		}
	}
	if first != nil {
		first.More = count - 1
	}
	return first
}

// storeOf checks one counter: in the order of the values fences do not fall,
// no write comes before one that had ended when it began, and what is between two
// values was written by somebody who was not told.
func storeOf(resource string, wrote, unknown []Record, final int64, finalKnown bool) *Violation {
	broken := func(records []Record, format string, args ...any) *Violation {
		return &Violation{Rule: RuleStore, Text: fmt.Sprintf("the store of %q ", resource) + fmt.Sprintf(format, args...), Records: records}
	}
	slices.SortStableFunc(wrote, func(a, b Record) int { return cmp.Compare(a.Value, b.Value) })
	unsure := newUnsure(unknown)
	var latest Record // of those so far, the one whose call began last
	for i, r := range wrote {
		if i == 0 {
			latest = r
			continue
		}
		before := wrote[i-1]
		switch {
		case r.Value == before.Value:
			return broken([]Record{before, r}, "lost an update: two writes found the same value before them")
		case r.Fence < before.Fence:
			return broken([]Record{before, r}, "took a write with the fence %d after one with %d", r.Fence, before.Fence)
		case r.At < latest.Began:
			return broken([]Record{r, latest}, "lost an update: a write found less than one that had ended before it began")
		}
		if missing := r.Value - before.Value - 1; !unsure.take(missing, before.Fence, r.Fence) {
			return broken([]Record{before, r}, "went from %d to %d, and too few writes of unknown outcome explain it", before.Value, r.Value)
		}
		if r.Began > latest.Began {
			latest = r
		}
	}
	if !finalKnown {
		return nil
	}
	var last Record
	var value int64
	if len(wrote) > 0 {
		last = wrote[len(wrote)-1]
		value = last.Value
	}
	if final < value || !unsure.take(final-value, last.Fence, ^uint64(0)) {
		return broken(recordsOf(last), "holds %d at the end, and its last write found %d", final, value)
	}
	return nil
}

func recordsOf(r Record) []Record {
	if r.Kind == "" {
		return nil
	}
	return []Record{r}
}

// unsure are the fences of writes with an unknown outcome, rising.
type unsure []uint64

func newUnsure(unknown []Record) *unsure {
	var u unsure
	for _, r := range unknown {
		u = append(u, r.Fence)
	}
	slices.Sort(u)
	return &u
}

// take uses up n of those with a fence from low to high, the lowest first: low
// never falls from call to call, so what a later call could use is left for it.
func (u *unsure) take(n int64, low, high uint64) bool {
	if n == 0 {
		return true
	}
	from, _ := slices.BinarySearch(*u, low)
	rest := (*u)[from:]
	if int64(len(rest)) < n || rest[n-1] > high {
		return false
	}
	*u = rest[n:]
	return true
}

package main

import (
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

func TestAHolderThatWasToldNothingIsFoundHoweverItEnds(t *testing.T) {
	const ms = time.Millisecond
	of := func(kind redlocktest.Kind, at time.Duration) redlocktest.Record {
		return redlocktest.Record{At: at, Kind: kind, Client: "c0", Hold: "a", Resources: []string{"r"}}
	}
	taken := of(redlocktest.Acquired, 1*s)
	taken.Deadline = 3 * s
	valid := of(redlocktest.Releasing, 4*s)
	valid.Deadline = 5 * s
	frozen := redlocktest.Record{Kind: redlocktest.Frozen, Client: "c0", Began: 3 * s, At: 4*s - 10*ms}
	elsewhere := frozen
	elsewhere.Client = "c1"
	late := redlocktest.Record{At: 4 * s, Kind: redlocktest.Delayed, Client: "c0", Began: 3 * s, Late: 90 * ms}
	for name, row := range map[string]struct {
		then   []redlocktest.Record
		untold int
	}{
		"told, and given back later":       {[]redlocktest.Record{of(redlocktest.Lost, 3*s), of(redlocktest.Releasing, 4*s)}, 0},
		"given back before":                {[]redlocktest.Record{of(redlocktest.Releasing, 3*s-1)}, 0},
		"given back right after":           {[]redlocktest.Record{of(redlocktest.Releasing, 3*s+toldSlack)}, 0},
		"given back later":                 {[]redlocktest.Record{of(redlocktest.Releasing, 3*s+toldSlack+1)}, 1},
		"given back later, seen valid":     {[]redlocktest.Record{of(redlocktest.Checked, 4*s-1), of(redlocktest.Releasing, 4*s)}, 0},
		"given back later, still valid":    {[]redlocktest.Record{valid}, 0},
		"given back later, after a freeze": {[]redlocktest.Record{frozen, of(redlocktest.Releasing, 4*s)}, 0},
		"another was frozen":               {[]redlocktest.Record{elsewhere, of(redlocktest.Releasing, 4*s)}, 1},
		"given back late by its timers":    {[]redlocktest.Record{late, of(redlocktest.Releasing, 3*s+toldSlack+180*ms)}, 0},
		"and later than that":              {[]redlocktest.Record{late, of(redlocktest.Releasing, 3*s+toldSlack+180*ms+1)}, 1},
		"killed, seen later":               {[]redlocktest.Record{of(redlocktest.Wrote, 4*s), of(redlocktest.Ended, 9*s)}, 1},
		"killed, not seen later":           {[]redlocktest.Record{of(redlocktest.Wrote, 2*s), of(redlocktest.Ended, 9*s)}, 0},
		"there to the end":                 {[]redlocktest.Record{of(redlocktest.Wrote, 4*s)}, 1},
	} {
		r, sum := &run{o: options{ttl: 2 * s}}, &summary{}
		err := r.checkTold(append([]redlocktest.Record{taken}, row.then...), sum)
		require.Equal(t, row.untold, sum.NeverTold, name)
		require.Equal(t, row.untold > 0, err != nil, "%s: %v", name, err)
	}
}

func TestMajoritiesThatCostNobodyALockAreSuspicious(t *testing.T) {
	held := func(until time.Duration) []redlocktest.Record {
		return []redlocktest.Record{
			{At: 1 * s, Kind: redlocktest.Acquired, Client: "c0", Hold: "a", Resources: []string{"r"}, Deadline: 100 * s},
			{At: until, Kind: redlocktest.Releasing, Client: "c0", Hold: "a"},
		}
	}
	for name, row := range map[string]struct {
		from, to time.Duration
		losses   int
		bad      bool
	}{
		"through the TTL":        {2 * s, 6 * s, 0, true},
		"and losses were told":   {2 * s, 6 * s, 1, false},
		"shorter than the TTL":   {2 * s, 3 * s, 0, false},
		"begun before the hold":  {s / 2, 9 * s, 0, false},
		"given back before then": {6 * s, 9 * s, 0, false},
	} {
		records := append(fault3("freeze-majority", row.from, row.to), held(7*s)...)
		err := (&run{o: options{ttl: 2 * s}}).checkTold(records, &summary{Losses: row.losses})
		require.Equal(t, row.bad, err != nil, "%s: %v", name, err)
	}
}

func TestACounterIsCheckedFromItsFirstValueToItsLast(t *testing.T) {
	wrote := func(value int64) redlocktest.Record {
		return redlocktest.Record{At: time.Duration(value) * s, Kind: redlocktest.Wrote, Resources: []string{"r"}, Fence: uint64(value), Value: value}
	}
	unknown := redlocktest.Record{At: s, Kind: redlocktest.Unknown, Resources: []string{"r"}, Fence: 1}
	for name, row := range map[string]struct {
		records []redlocktest.Record
		final   int64
		good    bool
	}{
		"all is there":                   {[]redlocktest.Record{wrote(1), wrote(2)}, 2, true},
		"the first is missing":           {[]redlocktest.Record{wrote(2), wrote(3)}, 3, false},
		"the first is of unknown end":    {[]redlocktest.Record{unknown, wrote(2), wrote(3)}, 3, true},
		"the last is gone":               {[]redlocktest.Record{wrote(1), wrote(2)}, 1, false},
		"somebody wrote without a trace": {[]redlocktest.Record{wrote(1), wrote(2)}, 3, false},
	} {
		h := redlocktest.NewHistory()
		for _, rec := range row.records {
			h.Add(rec)
		}
		err := (&run{finals: map[string]int64{"r": row.final}}).checkStore(h)
		require.Equal(t, row.good, err == nil, "%s: %v", name, err)
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

const s = time.Second

// fault is a fault that was healed.
func fault(text, client, node string, from, to time.Duration) []redlocktest.Record {
	r := redlocktest.Record{At: from, Kind: redlocktest.Fault, Text: text, Client: client, Node: node}
	healed := r
	healed.At, healed.Kind = to, redlocktest.Healed
	return []redlocktest.Record{r, healed}
}

func TestALossNeedsACauseThatIsEnough(t *testing.T) {
	const recovery = 3500 * time.Millisecond // a guard, and until it is noticed
	join := func(all ...[]redlocktest.Record) (records []redlocktest.Record) {
		for _, some := range all {
			records = append(records, some...)
		}
		return records
	}
	const quarter = 375 * time.Millisecond // of the TTL
	stillAt := func(at, d time.Duration) []redlocktest.Record {
		return []redlocktest.Record{{Kind: redlocktest.Frozen, Client: "c0", Began: at, At: at + d}}
	}
	still := func(d time.Duration) []redlocktest.Record { return stillAt(99*s, d) }
	for name, row := range map[string]struct {
		before []redlocktest.Record
		enough bool
	}{
		"nothing":     {nil, false},
		"two nodes":   {join(fault("freeze", "", "n0", 98*s, 99*s), fault("kill", "", "n1", 98*s, 99*s)), false},
		"three nodes": {join(fault("freeze", "", "n0", 98*s, 99*s), fault("kill", "", "n1", 98*s, 99*s), fault("cut", "c0", "n2", 98*s, 99*s)), true},
		"three nodes, one of them for somebody else": {
			join(fault("freeze", "", "n0", 98*s, 99*s), fault("kill", "", "n1", 98*s, 99*s), fault("cut", "c1", "n2", 98*s, 99*s)), false},
		"three nodes, one after the other": {
			join(fault("freeze", "", "n0", 94*s, 94*s), fault("kill", "", "n1", 98*s, 99*s), fault("cut", "c0", "n2", 98*s, 99*s)), false},
		"three nodes, one of which has not recovered": {
			join(fault("freeze", "", "n0", 94*s, 95*s), fault("kill", "", "n1", 98*s, 99*s), fault("cut", "c0", "n2", 98*s, 99*s)), true},
		"three nodes, long ago":               {fault3("freeze", 80*s, 81*s), false},
		"three nodes, recovered just before":  {fault3("freeze", 90*s, 100*s-recovery-1400*time.Millisecond), true},
		"what costs no vote, on three nodes":  {fault3("script-flush", 98*s, 99*s), false},
		"the process was frozen":              {fault("freeze-client", "c0", "", 98*s, 99*s), true},
		"another process was frozen":          {fault("freeze-client", "c1", "", 98*s, 99*s), false},
		"the process found itself frozen":     {[]redlocktest.Record{{Kind: redlocktest.Frozen, Client: "c0", Began: 98 * s, At: 99 * s}}, true},
		"the network's process stood still":   {[]redlocktest.Record{{Kind: redlocktest.Frozen, Client: ourselves, Began: 98 * s, At: 99 * s}}, true},
		"its timers were late":                {[]redlocktest.Record{{Kind: redlocktest.Delayed, Client: "c0", Began: 98 * s, At: 99 * s, Late: quarter}}, true},
		"its timers were a little late":       {[]redlocktest.Record{{Kind: redlocktest.Delayed, Client: "c0", Began: 98 * s, At: 99 * s, Late: quarter - 1}}, false},
		"it stood still for a moment":         {still(quarter - 1), false},
		"it stood still for a quarter":        {still(quarter), true},
		"it stood still in pieces":            {join(still(quarter/2), stillAt(99*s+500*time.Millisecond, quarter/2-1)), false},
		"it stood still in enough pieces":     {join(still(quarter/2), stillAt(99*s+500*time.Millisecond, quarter/2), stillAt(99*s+800*time.Millisecond, 1)), true},
		"one stall that both saw":             {join(still(quarter/2), still(quarter/2), fault("freeze-client", "c0", "", 99*s, 99*s+quarter/2)), false},
		"a fault that was not healed":         {fault3("freeze", 90*s, 1000*s)[:3], true},
		"the process was frozen too long ago": {fault("freeze-client", "c0", "", 90*s, 98*s), false},
	} {
		r := &run{o: options{ttl: 1500 * time.Millisecond}}
		loss := redlocktest.Record{At: 100 * s, Kind: redlocktest.Lost, Client: "c0", Text: "no quorum"}
		err := r.checkSteady(append(row.before, loss), &summary{})
		require.Equal(t, row.enough, err == nil, "%s: %v", name, err)
	}
}

// fault3 is done to three nodes; the beginnings come first.
func fault3(text string, from, to time.Duration) []redlocktest.Record {
	var begins, ends []redlocktest.Record
	for i := range 3 {
		f := fault(text, "", nodeName(i), from, to)
		begins, ends = append(begins, f[0]), append(ends, f[1])
	}
	return append(begins, ends...)
}

func TestAnEndThatWasAgreedUponNeedsNoCause(t *testing.T) {
	r := &run{o: options{ttl: s}}
	for _, text := range []string{redlocktest.LeaseOver, redlocktest.MaxHoldOver} {
		require.NoError(t, r.checkSteady([]redlocktest.Record{{At: s, Kind: redlocktest.Lost, Text: text}}, &summary{}))
	}
}

func TestAProcessThatWasKilledMayHaveWrittenWithoutSayingSo(t *testing.T) {
	records := []redlocktest.Record{
		{At: 1, Kind: redlocktest.Acquired, Client: "c0", Hold: "a", Fence: 7, Resources: []string{"r1", "r2"}},
		{At: 2, Kind: redlocktest.Acquired, Client: "c0", Hold: "b", Fence: 8, Resources: []string{"r3"}},
		{At: 3, Kind: redlocktest.Releasing, Client: "c0", Hold: "b"},
		{At: 4, Kind: redlocktest.Acquired, Client: "c1", Hold: "c", Fence: 9, Resources: []string{"r4"}},
		{At: 5, Kind: redlocktest.Ended, Client: "c0", Text: "killed"},
	}
	unknown := unknownWrites(records)
	require.Len(t, unknown, 2)
	for i, resource := range []string{"r1", "r2"} {
		require.Equal(t, redlocktest.Record{
			At: 5, Kind: redlocktest.Unknown, Client: "c0", Hold: "a", Fence: 7, Resources: []string{resource}, Text: "killed",
		}, unknown[i])
	}
}

func TestTheSummaryCounts(t *testing.T) {
	hold := func(client, hold string, from, deadline, end time.Duration, fence uint64) []redlocktest.Record {
		r := redlocktest.Record{Client: client, Hold: hold, Fence: fence, Resources: []string{"r"}}
		a, e := r, r
		a.Kind, a.At, a.Began, a.Deadline = redlocktest.Acquired, from, from-1, deadline
		e.Kind, e.At = redlocktest.Releasing, end
		return []redlocktest.Record{a, e}
	}
	var all summary
	all.overlaps(holdsOf(append(hold("c0", "a", 1*s, 9*s, 5*s, 1), hold("c1", "b", 4*s, 9*s, 6*s, 2)...)))
	require.Equal(t, 1, all.Overlaps)
	require.Equal(t, s, all.OverlapTime)

	var one summary
	one.overlaps(holdsOf(append(hold("c0", "a", 1*s, 3*s, 5*s, 1), hold("c1", "b", 4*s, 9*s, 6*s, 2)...)))
	require.Zero(t, one.Overlaps, "the first ended at its deadline")

	var falling summary
	falling.fences(append(hold("c0", "a", 1*s, 9*s, 2*s, 5), hold("c1", "b", 4*s, 9*s, 6*s, 5)...))
	require.Equal(t, 1, falling.FallingFences)

	var late summary
	late.lateness([]redlocktest.Record{
		{At: 5 * s, Kind: redlocktest.Lost, Client: "c0", Deadline: 4 * s},
		{At: 9 * s, Kind: redlocktest.Lost, Client: "c1", Deadline: 9*s - 1},
		{Began: 3 * s, At: 6 * s, Kind: redlocktest.Frozen, Client: "c0"},
		{At: 9 * s, Kind: redlocktest.Lost, Client: "c1", Deadline: 10 * s, Text: redlocktest.LeaseOver},
	})
	require.Equal(t, summary{Losses: 2, Agreed: 1, ToldEarly: 1, ToldLate: 2, MedianLate: 1, P99Late: 1, MaxLate: 1, MaxLateAny: s}, late)
}

func TestAKeyThatStaysIsFoundUnlessSomethingKeptItThere(t *testing.T) {
	const limit = time.Second + undoAfter + keysSlack
	held := []redlocktest.Record{
		{At: 10 * s, Kind: redlocktest.Acquired, Client: "c0", Hold: "a c0"},
		{At: 12 * s, Kind: redlocktest.Released, Client: "c0", Hold: "a c0"},
	}
	last := seenKey{12*s + limit + 1, "n1", "lock:r", "a c0"}
	for name, row := range map[string]struct {
		records []redlocktest.Record
		seen    []seenKey
		stays   bool
	}{
		"given back long ago":     {held, []seenKey{last}, true},
		"given back just before":  {held, []seenKey{{12*s + limit - 1, "n1", "lock:r", "a c0"}}, false},
		"still held":              {held[:1], []seenKey{last}, false},
		"nobody's":                {nil, []seenKey{{10 * s, "n1", "lock:r", "b c0"}, {10*s + limit, "n1", "lock:r", "b c0"}}, true},
		"nobody's, seen once":     {nil, []seenKey{{10 * s, "n1", "lock:r", "b c0"}}, false},
		"nobody's, on two nodes":  {nil, []seenKey{{10 * s, "n1", "lock:r", "b c0"}, {10*s + limit, "n2", "lock:r", "b c0"}}, false},
		"the node was frozen":     {append(fault("freeze", "", "n1", 13*s, 14*s), held...), []seenKey{last}, false},
		"another node was frozen": {append(fault("freeze", "", "n2", 13*s, 14*s), held...), []seenKey{last}, true},
		"it came back":            {append(fault("restart-aof", "", "n1", 2*s, 2*s), held...), []seenKey{last}, false},
		"its client was killed":   {append([]redlocktest.Record{{At: 8 * s, Kind: redlocktest.Ended, Client: "c0", Text: "killed"}}, held...), []seenKey{last}, false},
	} {
		r := &run{o: options{ttl: 10 * s, nodeTimeout: s, out: t.TempDir()}}
		var text []byte
		for _, k := range row.seen {
			line, err := json.Marshal(k)
			require.NoError(t, err)
			text = append(append(text, line...), '\n')
		}
		require.NoError(t, os.WriteFile(filepath.Join(r.o.out, keysFile), text, 0o644))
		err := r.checkTidy(row.records)
		require.Equal(t, row.stays, err != nil, "%s: %v", name, err)
	}
}

package redlocktest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// The records of tests in short. Times are milliseconds.

func acquired(at, began int, client, hold string, fence uint64, deadline int) Record {
	return Record{At: time.Duration(at) * ms, Began: time.Duration(began) * ms, Kind: Acquired, Client: client, Hold: hold,
		Resources: []string{"r"}, Fence: fence, Deadline: time.Duration(deadline) * ms}
}

func event(at int, kind Kind, client, hold string, more ...func(*Record)) Record {
	r := Record{At: time.Duration(at) * ms, Kind: kind, Client: client, Hold: hold}
	for _, f := range more {
		f(&r)
	}
	return r
}

func until(deadline int) func(*Record) {
	return func(r *Record) { r.Deadline = time.Duration(deadline) * ms }
}
func from(began int) func(*Record)             { return func(r *Record) { r.Began = time.Duration(began) * ms } }
func text(s string) func(*Record)              { return func(r *Record) { r.Text = s } }
func on(node string) func(*Record)             { return func(r *Record) { r.Node = node } }
func late(by int) func(*Record)                { return func(r *Record) { r.Late = time.Duration(by) * ms } }
func multi(r Record) Record                    { r.Resources = []string{"q", "r"}; return r }
func fault(at int, f ...func(*Record)) Record  { return event(at, Fault, "", "", f...) }
func healed(at int, f ...func(*Record)) Record { return event(at, Healed, "", "", f...) }

func wrote(at, began int, hold string, fence uint64, value int64) Record {
	return Record{At: time.Duration(at) * ms, Began: time.Duration(began) * ms, Kind: Wrote, Client: hold, Hold: hold,
		Resources: []string{"r"}, Fence: fence, Value: value}
}

func unsureWrite(at int, hold string, fence uint64) Record {
	r := wrote(at, at-1, hold, fence, 0)
	r.Kind = Unknown
	return r
}

func historyOf(records ...Record) *History {
	h := NewHistory()
	for _, r := range records {
		h.Add(r)
	}
	return h
}

func TestHistoriesThatPass(t *testing.T) {
	for name, records := range map[string][]Record{
		"empty": nil,
		"one touches the next": {
			acquired(10, 0, "a", "1", 1, 100), event(50, Releasing, "a", "1"), event(51, Released, "a", "1"),
			acquired(50, 0, "b", "2", 2, 150), event(60, Releasing, "b", "2", until(150)),
		},
		"the next has it while Unlock has not returned": {
			acquired(10, 0, "a", "1", 1, 100), event(20, Releasing, "a", "1"), acquired(25, 0, "b", "2", 2, 150),
			event(30, Released, "a", "1"), event(60, Releasing, "b", "2"),
		},
		"after an Unlock that nobody confirmed": {
			acquired(10, 0, "a", "1", 1, 100), event(20, Releasing, "a", "1"), event(30, Released, "a", "1", text("no quorum")),
			acquired(400, 390, "b", "2", 2, 500), event(410, Releasing, "b", "2"),
		},
		"renewed, then lost to a lease": {
			acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)), event(150, Checked, "a", "1"),
			event(190, Lost, "a", "1", until(190), text(LeaseOver)), acquired(190, 0, "b", "2", 2, 250), event(200, Releasing, "b", "2"),
		},
		"killed": {
			acquired(10, 0, "a", "1", 1, 100), event(40, Ended, "a", ""), acquired(41, 0, "b", "2", 2, 150), event(60, Releasing, "b", "2"),
			acquired(70, 65, "a", "3", 3, 150), event(75, Releasing, "a", "3"),
		},
		"killed, and nobody says when": {
			acquired(10, 0, "a", "1", 1, 1000), event(20, Checked, "a", "1"), acquired(41, 0, "b", "2", 2, 150), event(60, Releasing, "b", "2"),
		},
		"killed, then started again": {
			acquired(10, 0, "a", "1", 1, 1000), acquired(41, 0, "b", "2", 2, 150), event(60, Releasing, "b", "2"), event(40, Ended, "a", ""),
			acquired(70, 66, "a", "3", 3, 150), event(75, Releasing, "a", "3"), event(2000, NodeSays, "a", ""),
		},
		"told nothing, and killed in time": {
			acquired(10, 0, "a", "1", 1, 100), event(140, Refused, "a", "1"), event(900, Ended, "a", ""), event(950, NodeSays, "a", ""),
		},
		"told nothing, and given back right after a freeze": {
			acquired(10, 0, "a", "1", 1, 100), event(700, Releasing, "a", "1"), event(705, Frozen, "a", "", from(50)),
		},
		"told nothing, and given back as late as timers were": {
			acquired(10, 0, "a", "1", 1, 100), event(300, Releasing, "a", "1"), event(900, Delayed, "a", "", from(0), late(160)),
		},
		"deadline passed, Unlock called late": {
			acquired(10, 0, "a", "1", 1, 100), acquired(110, 0, "b", "2", 2, 250), event(120, Lost, "a", "1", until(100), text(LeaseOver)),
			event(130, Releasing, "a", "1"), event(140, Releasing, "b", "2"),
		},
		"frozen in the call, past the deadline": {
			acquired(200, 0, "a", "1", 1, 50), event(201, Lost, "a", "1", until(50), text(LeaseOver)),
			acquired(60, 0, "b", "2", 2, 250), event(210, Releasing, "b", "2"),
		},
		"waiters with old calls": {
			acquired(10, 0, "a", "1", 1, 100), event(20, Releasing, "a", "1"),
			acquired(30, 1, "b", "2", 2, 130), event(40, Releasing, "b", "2"),
			acquired(50, 2, "c", "3", 5, 150), event(60, Releasing, "c", "3"),
		},
		"valid after a renewal that nobody recorded": {
			acquired(10, 0, "a", "1", 1, 100), event(190, Checked, "a", "1"), event(190, Lost, "a", "1", until(190), text(LeaseOver)),
		},
		"valid after a renewal that was seen by asking": {
			acquired(10, 0, "a", "1", 1, 100), event(90, Checked, "a", "1", until(180)), event(180, Checked, "a", "1", until(180)),
			event(181, Releasing, "a", "1"),
		},
		"several resources": {
			multi(acquired(10, 0, "a", "1", 1, 100)), event(20, Releasing, "a", "1"), acquired(30, 0, "b", "2", 2, 100), event(40, Releasing, "b", "2"),
		},
		"a write of unknown outcome, done or not": {
			wrote(1, 0, "1", 1, 1), unsureWrite(2, "1", 1), wrote(4, 3, "2", 2, 3), unsureWrite(5, "2", 2), wrote(7, 6, "3", 3, 4),
		},
		"writes at the same time": {wrote(10, 0, "1", 1, 2), wrote(9, 1, "2", 1, 1)},
		"a loss with its fault on a node": {
			fault(5, on("n"), text("freeze")), acquired(10, 0, "a", "1", 1, 100), event(100, Lost, "a", "1", until(100), text("no quorum")),
		},
		"a loss with a fault that was healed a while ago": {
			fault(5, on("n"), text("freeze")), healed(8, on("n"), text("freeze")), acquired(10, 0, "a", "1", 1, 100),
			event(100, Lost, "a", "1", until(100), text("no quorum")),
		},
		"a loss after a freeze of the client": {
			acquired(10, 0, "a", "1", 1, 100), fault(20, text("SIGSTOP")), healed(400, text("SIGSTOP")),
			event(402, Frozen, "a", "", from(21)), event(403, Lost, "a", "1", until(100), text("no quorum")),
		},
		"a loss told as late as timers were": {
			fault(5, text("load")), acquired(10, 0, "a", "1", 1, 100), event(300, Lost, "a", "1", until(100), text("no quorum")),
			event(900, Delayed, "a", "", from(0), late(160)),
		},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, historyOf(records...).Check()) })
	}
}

func TestViolationsAreConvictedByTheShortestPiece(t *testing.T) {
	for name, c := range map[string]struct {
		records []Record
		rule    string
		piece   []int // which of the records
		text    string
	}{
		"two at the same time": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(12, Checked, "a", "1"), acquired(20, 15, "b", "2", 2, 120),
				event(30, Releasing, "a", "1"), event(35, Released, "a", "1"), event(40, Releasing, "b", "2")},
			rule: RuleExclusive, piece: []int{0, 2, 3}, text: "until +20ms, that of b from +10ms",
		},
		"one of several resources": {
			records: []Record{multi(acquired(10, 0, "a", "1", 1, 100)), acquired(20, 15, "b", "2", 2, 120),
				event(30, Releasing, "a", "1"), event(40, Releasing, "b", "2")},
			rule: RuleExclusive, piece: []int{0, 1, 2},
		},
		"renewed after it was another's": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)), acquired(150, 140, "b", "2", 2, 250),
				event(195, Lost, "a", "1", until(190), text(LeaseOver)), event(200, Releasing, "b", "2")},
			rule: RuleExclusive, piece: []int{0, 1, 2, 3},
		},
		"seen valid, whatever the deadline says": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), acquired(110, 105, "b", "2", 2, 250), event(120, Checked, "a", "1"),
				event(130, Releasing, "b", "2")},
			rule: RuleExclusive, piece: []int{0, 1, 2},
		},
		"still valid when it was unlocked": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), acquired(110, 105, "b", "2", 2, 250), event(120, Releasing, "a", "1", until(150)),
				event(130, Releasing, "b", "2")},
			rule: RuleExclusive, piece: []int{0, 1, 2},
		},
		"the one in between ends first": {
			records: []Record{acquired(10, 0, "a", "1", 1, 900), event(900, Releasing, "a", "1"), acquired(20, 15, "b", "2", 2, 120), event(30, Releasing, "b", "2"),
				acquired(40, 35, "c", "3", 3, 120), event(50, Releasing, "c", "3")},
			rule: RuleExclusive, piece: []int{0, 1, 2}, text: "1 more",
		},
		"another told of nothing before it was killed": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), acquired(20, 15, "b", "2", 2, 120), event(30, Ended, "a", ""), event(30, Ended, "b", "")},
			rule:    RuleExclusive, piece: []int{0, 1, 2},
		},
		"no end recorded, alive by a write": {
			records: []Record{acquired(10, 0, "a", "1", 1, 900), acquired(20, 15, "b", "2", 2, 900), event(30, Refused, "a", "1"), event(40, Releasing, "b", "2")},
			rule:    RuleExclusive, piece: []int{0, 1, 2}, text: "until +20ms",
		},
		"no end recorded, alive by what else its client does": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(15, Extended, "a", "1", until(200)), acquired(150, 145, "b", "2", 2, 900),
				event(160, Releasing, "b", "2"), event(220, Delayed, "a", "", from(0))},
			rule: RuleExclusive, piece: []int{0, 1, 2, 4}, text: "until +190ms",
		},
		"the same fence twice": {
			records: []Record{acquired(10, 0, "a", "1", 7, 100), event(20, Releasing, "a", "1"), acquired(30, 25, "b", "2", 7, 120), event(40, Releasing, "b", "2")},
			rule:    RuleFences, piece: []int{0, 2}, text: `the fences of "r" do not rise: 7, then 7`,
		},
		"a lower fence, of a call that began before": {
			records: []Record{acquired(10, 0, "a", "1", 7, 100), event(20, Releasing, "a", "1"), acquired(30, 1, "b", "2", 6, 120), event(40, Releasing, "b", "2")},
			rule:    RuleFences, piece: []int{0, 2}, text: "7, then 6",
		},
		"a lower fence long after": {
			records: []Record{acquired(10, 0, "a", "1", 7, 100), event(20, Releasing, "a", "1"), acquired(30, 25, "b", "2", 8, 120), event(40, Releasing, "b", "2"),
				acquired(50, 45, "c", "3", 6, 120), event(60, Releasing, "c", "3")},
			rule: RuleFences, piece: []int{2, 4},
		},
		"two that found the same value": {
			records: []Record{wrote(1, 0, "1", 1, 1), wrote(3, 2, "1", 1, 2), wrote(5, 4, "2", 2, 2)},
			rule:    RuleStore, piece: []int{1, 2}, text: "the same value",
		},
		"an old owner's write": {
			records: []Record{wrote(1, 0, "2", 2, 1), wrote(3, 2, "1", 1, 2)},
			rule:    RuleStore, piece: []int{0, 1}, text: "fence 1 after one with 2",
		},
		"a value that nobody wrote": {
			records: []Record{wrote(1, 0, "1", 1, 1), wrote(3, 2, "1", 1, 2), wrote(5, 4, "2", 2, 4)},
			rule:    RuleStore, piece: []int{1, 2}, text: "from 2 to 4",
		},
		"more than the unknown ones explain": {
			records: []Record{wrote(1, 0, "1", 1, 1), unsureWrite(2, "1", 1), wrote(4, 3, "2", 2, 3), wrote(6, 5, "2", 2, 5)},
			rule:    RuleStore, piece: []int{2, 3}, text: "from 3 to 5",
		},
		"an unknown one explains once": {
			records: []Record{wrote(1, 0, "1", 1, 1), unsureWrite(2, "1", 1), wrote(4, 3, "1", 1, 3), wrote(6, 5, "1", 1, 5)},
			rule:    RuleStore, piece: []int{2, 3},
		},
		"an unknown one of a later owner explains nothing": {
			records: []Record{wrote(1, 0, "1", 1, 1), wrote(4, 3, "2", 2, 3), unsureWrite(9, "3", 3)},
			rule:    RuleStore, piece: []int{0, 1},
		},
		"values against time": {
			records: []Record{wrote(10, 9, "1", 1, 2), wrote(20, 15, "1", 1, 1)},
			rule:    RuleStore, piece: []int{0, 1}, text: "had ended before it began",
		},
		"told late": {
			records: []Record{fault(5, text("cut")), acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)),
				event(300, Lost, "a", "1", until(190), text("no quorum"))},
			rule: RuleHonest, piece: []int{1, 3}, text: "110ms after the deadline",
		},
		"told late, by the deadline that was recorded": {
			records: []Record{fault(5, text("cut")), acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)),
				event(300, Lost, "a", "1", until(180), text("no quorum"))},
			rule: RuleHonest, piece: []int{1, 2, 3},
		},
		"told later than its delay": {
			records: []Record{fault(5, text("cut")), acquired(10, 0, "a", "1", 1, 100), event(200, Lost, "a", "1", until(100), text("no quorum")),
				event(250, Delayed, "a", "", from(150), late(49)), event(260, Delayed, "b", "", from(150), late(500)),
				event(99, Delayed, "a", "", from(20), late(500)), event(400, Delayed, "a", "", from(201), late(500))},
			rule: RuleHonest, piece: []int{1, 2}, text: "of which 49ms are excused",
		},
		"told later than its freeze": {
			records: []Record{fault(5, text("cut")), acquired(10, 0, "a", "1", 1, 100), event(300, Frozen, "a", "", from(50)),
				event(360, Lost, "a", "1", until(100), text("no quorum"))},
			rule: RuleHonest, piece: []int{1, 3}, text: "260ms after the deadline, of which 200ms are excused",
		},
		"never told": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)), event(150, Checked, "a", "1"),
				event(900, NodeSays, "a", "", text("back")), event(901, NodeSays, "b", "", text("back"))},
			rule: RuleHonest, piece: []int{0, 1, 3}, text: "never told",
		},
		"never told, and given back": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)), event(900, Releasing, "a", "1"),
				event(901, Released, "a", "1")},
			rule: RuleHonest, piece: []int{0, 1, 2}, text: "was there 710ms after the deadline",
		},
		"never told, and killed long after": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(300, Refused, "a", "1"), event(900, Ended, "a", ""), event(950, NodeSays, "a", "")},
			rule:    RuleHonest, piece: []int{0, 1}, text: "was there 200ms after the deadline",
		},
		"never told, later than its freeze": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(300, Frozen, "a", "", from(50)), event(360, Releasing, "a", "1")},
			rule:    RuleHonest, piece: []int{0, 2}, text: "was there 260ms after the deadline",
		},
		"told late, and names a deadline itself": {
			records: []Record{fault(5, text("cut")), acquired(10, 0, "a", "1", 1, 100), event(300, Lost, "a", "1", until(300), text("no quorum"))},
			rule:    RuleHonest, piece: []int{1, 2}, text: "110ms after the deadline",
		},
		"a lease that is over before its end": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(60, Extended, "a", "1", until(160)), event(150, Lost, "a", "1", until(150), text(LeaseOver))},
			rule:    RuleHonest, piece: []int{0, 1, 2}, text: "without a reason",
		},
		"a longest hold that is over before its end": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(50, Lost, "a", "1", until(160), text(MaxHoldOver))},
			rule:    RuleHonest, piece: []int{0, 1}, text: "without a reason",
		},
		"valid after the deadline that it names": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(50, Checked, "a", "1", until(100)), event(102, Checked, "a", "1", until(100)),
				event(103, Releasing, "a", "1")},
			rule: RuleHonest, piece: []int{0, 2}, text: "2ms after the deadline",
		},
		"valid after any deadline that it can have had": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(90, Extended, "a", "1", until(190)), event(345, Checked, "a", "1"),
				event(345, Lost, "a", "1", until(345), text("no quorum")), fault(5, text("cut")), event(200, Checked, "a", "1")},
			rule: RuleHonest, piece: []int{0, 1, 2}, text: "55ms after the deadline",
		},
		"lost without any fault": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(100, Lost, "a", "1", until(100), text("no quorum"))},
			rule:    RuleHonest, piece: []int{0, 1}, text: "without a reason",
		},
		"lost long after the fault": {
			records: []Record{fault(5, text("cut")), healed(6, text("cut")), acquired(300, 290, "a", "1", 1, 400),
				event(400, Lost, "a", "1", until(400), text("no quorum")), fault(401, text("cut"))},
			rule: RuleHonest, piece: []int{2, 3}, text: "no fault from 250ms before",
		},
		"lost by another client's fault": {
			records: []Record{event(5, Fault, "b", "", text("SIGSTOP")), acquired(10, 0, "a", "1", 1, 100), event(100, Lost, "a", "1", until(100), text("no quorum"))},
			rule:    RuleHonest, piece: []int{1, 2},
		},
		"a key that is left": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(40, Releasing, "a", "1"), event(41, Released, "a", "1"),
				event(900, Left, "", "1", on("n")), event(900, Left, "", "2", on("n"))},
			rule: RuleClean, piece: []int{0, 1, 3}, text: "1 more",
		},
		"a key of nobody": {
			records: []Record{acquired(10, 0, "a", "1", 1, 100), event(40, Releasing, "a", "1"), event(900, Left, "", "2", on("n"))},
			rule:    RuleClean, piece: []int{2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := historyOf(c.records...)
			v := violation(t, h.Check(), c.rule)
			var piece []Record
			for _, i := range c.piece {
				piece = append(piece, c.records[i])
			}
			require.Equal(t, historyOf(piece...).Records(), v.Records, v.Error())
			require.Contains(t, v.Error(), c.text)
			for rule, check := range map[string]func(*History) error{
				RuleExclusive: (*History).CheckExclusive,
				RuleFences:    (*History).CheckFences,
				RuleStore:     func(h *History) error { return h.CheckStore() },
				RuleHonest:    func(h *History) error { return h.CheckHonest(50 * ms) },
				RuleClean:     (*History).CheckClean,
			} {
				if rule == c.rule {
					require.Error(t, check(h), "its own check finds it")
				} else if c.rule != RuleExclusive || rule != RuleFences { // porcupine sees an overlap too
					require.NoError(t, check(h), "no other does")
				}
			}
		})
	}
}

// violation returns the violation of a rule in what a check returned.
func violation(t testing.TB, err error, rule string) *Violation {
	t.Helper()
	require.Error(t, err)
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, each := range all {
		var v *Violation
		require.True(t, errors.As(each, &v))
		if v.Rule == rule {
			return v
		}
	}
	require.Fail(t, "no violation of "+rule, err)
	return nil
}

func TestAViolationReads(t *testing.T) {
	h := historyOf(acquired(10, 7, "a", "1", 41, 110), event(30, Releasing, "a", "1"),
		acquired(20, 12, "worker-b", "2", 42, 120), event(40, Releasing, "worker-b", "2"))
	require.Equal(t, `redlocktest: exclusive: two holds of "r" at the same time: that of a is believed in until +20ms, that of worker-b from +10ms
  +0s    a         acquired   "r", fence 41, since -3ms, valid until +100ms
  +10ms  worker-b  acquired   "r", fence 42, since +2ms, valid until +110ms
  +20ms  a         releasing  
`, h.CheckExclusive().Error())
}

func TestAnUnreadableHistoryPassesNoCheck(t *testing.T) {
	h, err := OpenHistory(t.TempDir() + "/history")
	require.NoError(t, err)
	require.NoError(t, h.Check())
	require.NoError(t, h.Close())
	h.Add(Record{Kind: Ended})
	for _, err := range []error{h.Check(), h.CheckExclusive(), h.CheckFences(), h.CheckStore(), h.CheckHonest(0), h.CheckClean()} {
		require.ErrorContains(t, err, "recording")
	}
}

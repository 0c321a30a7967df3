package redlocktest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// To porcupine an overlap is a mutex with two holders; it takes the ends of the
// first to show it.
func TestTheFencesShowAnOverlapToo(t *testing.T) {
	records := []Record{acquired(10, 0, "a", "1", 1, 100), event(12, Checked, "a", "1"), acquired(20, 15, "b", "2", 2, 120),
		event(30, Releasing, "a", "1"), event(35, Released, "a", "1"), event(40, Releasing, "b", "2")}
	v := violation(t, historyOf(records...).CheckFences(), RuleFences)
	require.Equal(t, []Record{records[0], records[2], records[3]}, v.Records)
	require.Contains(t, v.Text, "in no order")
}

// A call that lasts for a whole piece, and was over when it returned, had its lock
// at a moment that only its fence tells.
func TestACallThatSpansACutIsComparedWithAllOfThem(t *testing.T) {
	var records []Record
	for i := range 200 {
		records = append(records, acquired(10*i+5, 10*i+4, "c", itoa(i), uint64(10*i+10), 10*i+100), event(10*i+8, Releasing, "c", itoa(i)))
	}
	frozen := func(fence uint64) Record { return acquired(1500, 101, "frozen", "f", fence, 102) } // after the tenth of them
	require.NoError(t, historyOf(append(records, frozen(101))...).CheckFences())
	v := violation(t, historyOf(append(records, frozen(50))...).CheckFences(), RuleFences)
	require.Len(t, v.Records, 2)
	require.Equal(t, "f", v.Records[1].Hold)
}

// What may have been cut away must not hide anything: long histories, convicted
// at every place.
func TestLongHistoriesAreCutWithoutLosingAnything(t *testing.T) {
	const n = 300
	var records []Record
	for i := range n {
		records = append(records, acquired(10*i+5, max(0, 10*i-25), "c"+itoa(i%4), itoa(i), uint64(i+1), 10*i+100),
			event(10*i+8, Releasing, "c"+itoa(i%4), itoa(i)))
	}
	require.NoError(t, historyOf(records...).Check())
	for i := 1; i < n; i++ {
		before := records[2*i].Fence
		records[2*i].Fence = uint64(i)
		v := violation(t, historyOf(records...).CheckFences(), RuleFences)
		require.Len(t, v.Records, 2, i)
		require.Equal(t, itoa(i-1), v.Records[0].Hold)
		records[2*i].Fence = before
	}
}

package redlocktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEnoughNodesMustHaveFailedWhereTheirNumberIsKnown(t *testing.T) {
	lost := []Record{acquired(10, 0, "a", "1", 1, 100), event(100, Lost, "a", "1", until(100), text("no quorum"))}
	for name, c := range map[string]struct {
		faults []Record
		nodes  int
		fine   bool
	}{
		"two of five":            {[]Record{fault(20, on("1")), fault(30, on("2"))}, 5, false},
		"one of five, twice":     {[]Record{fault(20, on("1"), text("cut")), fault(30, on("1"), text("freeze")), fault(30, on("2"))}, 5, false},
		"three of five":          {[]Record{fault(20, on("1")), fault(30, on("2")), fault(40, on("3"))}, 5, true},
		"three, one of them ago": {[]Record{fault(20, on("1")), fault(30, on("2")), fault(-900, on("3")), healed(-500, on("3"))}, 5, false},
		"two of four":            {[]Record{fault(20, on("1")), fault(30, on("2"))}, 4, true},
		"all of them":            {[]Record{fault(20)}, 5, true},
		"the client":             {[]Record{event(20, Fault, "a", "")}, 5, true},
		"three, not at once":     {[]Record{fault(20, on("1")), healed(30, on("1")), fault(20, on("2")), healed(30, on("2")), fault(31, on("3"))}, 5, false},
		"three, once":            {[]Record{fault(20, on("1")), healed(30, on("1")), fault(25, on("2")), healed(40, on("2")), fault(30, on("3"))}, 5, true},
		"one link":               {[]Record{event(20, Fault, "a", "", on("1"))}, 5, false},
		"another's link":         {[]Record{event(20, Fault, "b", "", on("1")), fault(20, on("2")), fault(20, on("3"))}, 5, false},
		"a link and two nodes":   {[]Record{event(20, Fault, "a", "", on("1")), fault(20, on("2")), fault(20, on("3"))}, 5, true},
		"one link of how many":   {[]Record{event(20, Fault, "a", "", on("1"))}, 0, true},
		"two of how many":        {[]Record{fault(20, on("1"))}, 0, true},
	} {
		err := historyOf(append(c.faults, lost...)...).Check(WithNodes(c.nodes))
		require.Equal(t, c.fine, err == nil, "%s: %v", name, err)
	}
}

func TestTheWindowForCausesCanBeSet(t *testing.T) {
	h := historyOf(fault(5, text("cut")), healed(6, text("cut")), acquired(300, 290, "a", "1", 1, 400),
		event(400, Lost, "a", "1", until(400), text("no quorum")))
	require.Error(t, h.CheckHonest(0, WithCauseWindow(393*ms)))
	require.NoError(t, h.CheckHonest(0, WithCauseWindow(394*ms)))
}

func TestTheWindowForCausesEndsAtTheDeadline(t *testing.T) {
	h := historyOf(fault(5, text("cut")), healed(90, text("cut")), acquired(10, 0, "a", "1", 1, 100),
		event(900, Lost, "a", "1", until(100), text("no quorum")))
	require.NoError(t, h.CheckHonest(time.Second), "however late it was told")
}

func TestTheSlackIsExact(t *testing.T) {
	h := historyOf(acquired(300, 290, "a", "1", 1, 400), event(401, Lost, "a", "1", until(400), text(LeaseOver)))
	require.NoError(t, h.CheckHonest(ms))
	require.Error(t, h.CheckHonest(ms-1))
	require.NoError(t, h.Check())
	require.Error(t, h.Check(WithSlack(0)))
}

func TestTheFinalValueOfAStoreIsChecked(t *testing.T) {
	h := historyOf(wrote(1, 0, "1", 1, 1), wrote(3, 2, "1", 1, 2), unsureWrite(4, "1", 1))
	require.NoError(t, h.CheckStore(WithFinal("r", 2)))
	require.NoError(t, h.CheckStore(WithFinal("r", 3)), "the unknown one")
	require.NoError(t, h.CheckStore(WithFinal("other", 3)), "nobody recorded it")
	require.ErrorContains(t, h.CheckStore(WithFinal("r", 1)), "holds 1 at the end")
	require.ErrorContains(t, h.CheckStore(WithFinal("r", 4)), "holds 4 at the end")
}

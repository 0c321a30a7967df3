package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fenceBy finds a case by its name.
func fenceBy(t *testing.T, name string) *fenceModel {
	for _, c := range fenceCases() {
		if c.name == name {
			return newFence(c.model)
		}
	}
	require.Fail(t, "no case is called "+name)
	return nil
}

// fenceFrom is a fence model that starts later.
type fenceFrom struct {
	*fenceModel
	start fenceState
}

func (m fenceFrom) initial() []fenceState { return []fenceState{m.start} }

// startingWith takes the first steps of a way that would be long to find.
func startingWith(t *testing.T, m *fenceModel, steps ...string) fenceFrom {
	s := m.initial()[0]
	for _, want := range steps {
		var to fenceState
		m.next(s, func(what string, next fenceState) {
			if what == want {
				to = next
			}
		})
		require.NotZero(t, to, "%s cannot follow %s", want, s)
		s = to
	}
	return fenceFrom{m, s}
}

// keeps checks that every state keeps the promise, after the first steps, if any.
func keeps(t *testing.T, name string, steps ...string) {
	t.Helper()
	got := explore(startingWith(t, fenceBy(t, name), steps...), 30_000)
	require.Empty(t, got.wrong, strings.Join(got.trace, "\n"))
	require.True(t, got.complete)
}

// keepsNear checks the states near the start: the command walks through all of them.
func keepsNear(t *testing.T, name string) {
	t.Helper()
	got := explore(fenceBy(t, name), 10_000)
	require.Empty(t, got.wrong, strings.Join(got.trace, "\n"))
}

// oneFence checks that two owners can get one fence, after the first steps, if any.
func oneFence(t *testing.T, name string, steps ...string) {
	t.Helper()
	got := explore(startingWith(t, fenceBy(t, name), steps...), 30_000)
	require.Equal(t, "two owners have one fence", got.wrong)
	require.Len(t, got.trace, got.depth+1)
}

// reportA are the steps by which the first client gets the lock from two nodes.
var reportA = []string{"n0 grants A: 1", "n1 grants A: 1", "A decides on fence 1"}

func TestFencesRiseInTheOrderOfOwnership(t *testing.T) {
	keeps(t, "3 nodes, 2 clients")
	keeps(t, "4 nodes, 2 clients")
	keeps(t, "2 stripes")
	for _, c := range fenceSound() {
		keepsNear(t, c.name)
	}
}

func TestRaisingOneOfSeveralStripesGivesTwoOwnersOneFence(t *testing.T) {
	oneFence(t, "raise one stripe")
}

func TestRaisingWithoutOwnershipGivesTwoOwnersOneFence(t *testing.T) {
	oneFence(t, "raise not ours")
}

func TestRaisingWithOneOfSeveralKeysGivesTwoOwnersOneFence(t *testing.T) {
	oneFence(t, "raise one key", "n0 grants A: 1", "n0 grants C: 2")
}

func TestCheckingBeforeRaisingGivesTwoOwnersOneFence(t *testing.T) { oneFence(t, "check, then raise") }
func TestRaisingBeforeCheckingIsSafe(t *testing.T)                 { keeps(t, "raise, then check") }
func TestRaisingWithoutCountingIsSafe(t *testing.T)                { keeps(t, "raise uncounted") }

func TestCountingAGrantAboveTheFenceGivesTwoOwnersOneFence(t *testing.T) { oneFence(t, "count above") }
func TestCountingARefillGivesTwoOwnersOneFence(t *testing.T)             { oneFence(t, "refill counts") }
func TestRefillingBeforeTheReportGivesTwoOwnersOneFence(t *testing.T)    { oneFence(t, "refill early") }
func TestRefillingNodesThatAreNotCountedIsSafe(t *testing.T)             { keeps(t, "refill early, spent") }

func TestNotRaisingGivesTwoOwnersOneFence(t *testing.T)        { oneFence(t, "no raise") }
func TestTheSmallestAnswerGivesTwoOwnersOneFence(t *testing.T) { oneFence(t, "smallest") }
func TestEqualAnswersNeedNoRaise(t *testing.T)                 { keeps(t, "only equal") }
func TestAnswersNotStoredGiveTwoOwnersOneFence(t *testing.T)   { oneFence(t, "unstored") }
func TestAnswersStoredLaterGiveTwoOwnersOneFence(t *testing.T) { oneFence(t, "stored later") }

func TestSetBeforeCounterIsSafeWithoutResends(t *testing.T)   { keeps(t, "fail after set") }
func TestSetBeforeCounterGivesAResendAnOldFence(t *testing.T) { oneFence(t, "fail after set, resend") }

func TestAResendMayIncrementOrNot(t *testing.T) {
	keeps(t, "resend increments", "n0 grants A: 1, but the reply is lost")
	keepsNear(t, "fail after set, increment")
}

func TestAResendThatSeesOneKeyGivesAnOldFence(t *testing.T) { oneFence(t, "resend one key") }

func TestACopyThatArrivesLateGivesTwoOwnersOneFence(t *testing.T) {
	oneFence(t, "silent copy", "n0 grants A: 1, but the reply is lost", "n0 grants A: 2", "n2 grants A: 1")
	keepsNear(t, "silent copy, equal")
}

func TestAReaderThatDoesNotIncrementHasTheFenceOfAWriter(t *testing.T) {
	oneFence(t, "readers share", "n0 grants A: 1", "n0 grants B: 2", "n1 grants C: 1", "n1 grants A: 2")
}

func TestNodesThatForgotMustNotVote(t *testing.T) { oneFence(t, "unsteady votes") }

func TestNodesThatForgotMustNotWrite(t *testing.T) {
	keepsNear(t, "unsteady writes")
	oneFence(t, "unsteady writes, resend", append(reportA, "n0 forgets all", "n0 grants B: 1, which nobody counts")...)
}

func TestHealingNeedsToReadStripes(t *testing.T) { oneFence(t, "heal unread") }
func TestHealingNeedsAMajority(t *testing.T)     { oneFence(t, "heal few") }

func TestHealingOneOfFourNeedsTwo(t *testing.T) {
	keeps(t, "heal few of 4", "n0 grants A: 1", "n1 grants A: 1", "n2 grants A: 1", "A decides on fence 1", "n0 forgets all")
}

func TestAnOldSurveyIsSafeWhileTheNodeStaysUnsteady(t *testing.T) {
	keeps(t, "nodes forget", "n0 forgets all", "n1's stripes are read to heal n0", "n2's stripes are read to heal n0",
		"n1 grants A: 1", "n2 grants A: 1", "A decides on fence 1")
}

func TestHealingNeedsToReadAfterTheLoss(t *testing.T) {
	oneFence(t, "heal before", append([]string{"n1's stripes are read to heal n0"}, reportA...)...)
}

func TestHealingNeedsToReadAfterTheGuard(t *testing.T) { oneFence(t, "heal unguarded") }

func TestHealingNeedsToReadSteadyNodes(t *testing.T) {
	oneFence(t, "heal from unsteady", append(reportA, "n0 forgets all")...)
}

func TestHealingNeedsToCompareTheNonce(t *testing.T) {
	oneFence(t, "heal other run", "n0 forgets all", "n1's stripes are read to heal n0", "n1 grants A: 1",
		"n2's stripes are read to heal n0", "n0 is healed")
}

func TestOnlyClocksHelpWhereNoMajorityIsSteady(t *testing.T) { oneFence(t, "heal alone") }

// bothReported is a fence model in which it is wrong that all acquisitions are reported and no node is unsteady.
type bothReported struct{ *fenceModel }

func (m bothReported) wrong(s fenceState) string {
	for i := range m.wants {
		if !m.reported(&s, i) {
			return ""
		}
	}
	if m.steady(&s) < m.nodes || s.losses > 0 {
		return ""
	}
	return "all reported"
}

func TestAllAcquisitionsCanBeReported(t *testing.T) {
	for _, m := range []fenceModel{fencePair, fenceThree, fenceFive, fenceShared, fenceMulti, fenceReaders, fenceForgets.losing(1)} {
		require.Equal(t, "all reported", explore(bothReported{newFence(m)}, 30_000).wrong)
	}
}

// TestNamesDoNotMatter renames nodes and acquisitions along random walks: the canonical form stays, and so do those of
// the states that can follow.
func TestNamesDoNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, config := range []fenceModel{fenceThree, fenceReaders, fenceFive, fenceResend} {
		m := newFence(config)
		for range 100 {
			s := m.initial()[0]
			for range 15 {
				other := m.renamings[random.IntN(len(m.renamings))].of(&s)
				random.Shuffle(m.nodes, func(a, b int) { other.node[a], other.node[b] = other.node[b], other.node[a] })
				require.Equal(t, m.canonical(s), m.canonical(other))
				require.Equal(t, m.wrong(s), m.wrong(other))
				following := after(m, s)
				require.Equal(t, canonicals(m, following), canonicals(m, after(m, other)))
				if len(following) == 0 {
					break
				}
				s = following[random.IntN(len(following))]
			}
		}
	}
}

func after(m *fenceModel, s fenceState) (all []fenceState) {
	m.next(s, func(_ string, to fenceState) { all = append(all, to) })
	return all
}

func canonicals(m *fenceModel, all []fenceState) map[fenceState]bool {
	set := map[fenceState]bool{}
	for _, s := range all {
		set[m.canonical(s)] = true
	}
	return set
}

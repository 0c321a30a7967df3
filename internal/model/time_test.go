package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	twoOwners  = "two clients are both valid"
	backToLife = "a handle is valid again although another owned the resource in between"
	comesBack  = "a key of a token that was undone is there"
)

// explored does the run of that name.
func explored(t *testing.T, name string, limit int) result {
	t.Helper()
	for _, r := range slices.Concat(timeRuns(), markerRuns()) {
		if r.name == name {
			return r.do(limit)
		}
	}
	require.FailNow(t, "no run is called "+name)
	return result{}
}

// holds checks that the run keeps its promise in every state.
func holds(t *testing.T, name string) {
	t.Helper()
	got := explored(t, name, 200_000)
	require.Empty(t, got.wrong, strings.Join(got.trace, "\n"))
	require.True(t, got.complete)
}

// holdsNear checks the states near the start: the command walks further.
func holdsNear(t *testing.T, name string) {
	t.Helper()
	got := explored(t, name, 20_000)
	require.Empty(t, got.wrong, strings.Join(got.trace, "\n"))
}

// breaks checks that the run breaks this promise.
func breaks(t *testing.T, name, promise string) {
	t.Helper()
	got := explored(t, name, 200_000)
	require.Equal(t, promise, got.wrong)
	require.Len(t, got.trace, got.depth+1)
}

func TestOneOwnerAtATime(t *testing.T) { holds(t, "time/safe") }
func TestOneOwnerWhereNodesRestartWithoutEnd(t *testing.T) {
	holdsNear(t, "time/safe/shortest")
	holdsNear(t, "time/safe/restarts")
}
func TestOneOwnerWhereClocksDrift(t *testing.T)        { holdsNear(t, "time/safe/drift") }
func TestOneOwnerOnFiveNodes(t *testing.T)             { holdsNear(t, "time/safe/5nodes") }
func TestALockOnAllNodesSurvivesALostKey(t *testing.T) { holdsNear(t, "time/safe/unseen") }

func TestNotReadingTheClockAfterTheLastReplyGaveTwoOwners(t *testing.T) {
	breaks(t, "time/no-elapsed-check", twoOwners)
}
func TestValidityCountedFromTheReplyGaveTwoOwners(t *testing.T) {
	breaks(t, "time/from-reply", twoOwners)
}
func TestARenewalCountedAfterTheDeadlineRevivedALostLock(t *testing.T) {
	breaks(t, "time/late-count", backToLife)
}
func TestADeadlineThatFollowedOneOfThreeGaveTwoOwners(t *testing.T) {
	breaks(t, "time/fewer-renew", twoOwners)
}
func TestNoAllowanceForDriftGaveTwoOwners(t *testing.T)     { breaks(t, "time/no-drift", twoOwners) }
func TestARestartWithoutGuardGaveTwoOwners(t *testing.T)    { breaks(t, "time/no-guard", twoOwners) }
func TestAGuardShorterThanTheTTLGaveTwoOwners(t *testing.T) { breaks(t, "time/short-guard", twoOwners) }
func TestAnUnsteadyNodeThatGrantedGaveTwoOwners(t *testing.T) {
	breaks(t, "time/unsteady-acquires", twoOwners)
}
func TestAnUnsteadyNodeThatConfirmedARenewalGaveTwoOwners(t *testing.T) {
	breaks(t, "time/unsteady-renews", twoOwners)
}
func TestARefilledNodeThatVotedGaveTwoOwners(t *testing.T) {
	breaks(t, "time/unsteady-refill-votes", twoOwners)
}
func TestALockOnABareQuorumDoesNotSurviveALostKey(t *testing.T) {
	breaks(t, "time/bare-quorum", twoOwners)
}
func TestAMarginRunsOutWithTheConfirmationsItCounts(t *testing.T) {
	breaks(t, "time/old-margin", twoOwners)
}

func TestALateVoteIsSafeBeforeTheDeadline(t *testing.T) { holdsNear(t, "time/spare/node-timeout") }
func TestARefilledSteadyNodeMayVote(t *testing.T)       { holdsNear(t, "time/spare/refill-votes") }

func TestANodeCrossedOffTheUndoListIsFreeForGood(t *testing.T) { holds(t, "time/undo/safe") }
func TestARequestWithoutLatestSecondOutlivedItsUndo(t *testing.T) {
	breaks(t, "time/undo/no-latest", comesBack)
}
func TestAReleaseOnAnotherConnectionWasOvertaken(t *testing.T) {
	breaks(t, "time/undo/one-release", comesBack)
}
func TestAReleaseSentBeforeTheLatestSecondWasTooEarly(t *testing.T) {
	breaks(t, "time/undo/by-reply", comesBack)
}
func TestARenewalOfADeadHandleBroughtTheKeyBack(t *testing.T) {
	breaks(t, "time/undo/still-renews", comesBack)
}
func TestAnUndoDroppedWithTheLatestSecondLeftTheKey(t *testing.T) {
	breaks(t, "time/undo/gives-up-early", comesBack)
}
func TestALateRenewalKeptAKeyLongerThanItsUndo(t *testing.T) {
	breaks(t, "time/undo/prolongs-late", comesBack)
}

// unmerged is a model whose states are kept with their names; seen are they without.
type unmerged[S comparable] struct {
	model[S]
	canonical func(S) S
	seen      map[S]bool
}

func (m unmerged[S]) wrong(s S) string {
	m.seen[m.canonical(s)] = true
	return m.model.wrong(s)
}

func TestNamesAreNothing(t *testing.T) {
	small := timedBase()
	small.shortest()
	mergesOnlyNames(t, small, small.canonical)
	small.restarts = 1
	small.guard = 1
	mergesOnlyNames(t, small, small.canonical)
	for _, marked := range []markerRules{
		{nodes: 1, clients: 2, guard: 1, writes: 1, flushes: true, restarts: true},
		{nodes: 1, clients: 1, guard: 1, writes: 2, flushes: true},
		{nodes: 2, clients: 1, guard: 1, writes: 1, restarts: true},
	} {
		mergesOnlyNames(t, marked, marked.canonical)
	}
}

// mergesOnlyNames checks that the walk in which names are nothing sees the same states as the one that keeps them, and
// the same promise broken, if any, as soon.
func mergesOnlyNames[S comparable](t *testing.T, m model[S], canonical func(S) S) {
	t.Helper()
	merged, seen := explore(m, 200_000), map[S]bool{}
	all := explore[S](unmerged[S]{m, canonical, seen}, 2_000_000)
	require.Less(t, merged.states, all.states)
	require.Equal(t, all.wrong, merged.wrong)
	if all.wrong != "" {
		require.Equal(t, all.depth, merged.depth)
		return
	}
	require.True(t, all.complete && merged.complete)
	require.Len(t, seen, merged.states)
}

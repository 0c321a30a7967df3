package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// grid walks from one corner of a square to the opposite one; bad, if any, is forbidden.
type grid struct {
	side int
	bad  [2]int
}

func (g grid) initial() [][2]int { return [][2]int{{0, 0}} }

func (g grid) next(s [2]int, step func(string, [2]int)) {
	if s[0] < g.side {
		step("right", [2]int{s[0] + 1, s[1]})
	}
	if s[1] < g.side {
		step("up", [2]int{s[0], s[1] + 1})
	}
}

func (g grid) wrong(s [2]int) string {
	if g.bad != [2]int{} && s == g.bad {
		return "stepped on the bad square"
	}
	return ""
}

// foldedGrid is a grid whose two axes are alike.
type foldedGrid struct{ grid }

func (g foldedGrid) canonical(s [2]int) [2]int { return [2]int{min(s[0], s[1]), max(s[0], s[1])} }

func TestExploreSeesEveryStateOnce(t *testing.T) {
	r := explore(grid{side: 4}, 1000)
	require.Equal(t, 25, r.states)
	require.Equal(t, 8, r.depth)
	require.True(t, r.complete)
	require.Empty(t, r.wrong)
}

func TestExploreFindsAShortestTrace(t *testing.T) {
	r := explore(grid{side: 4, bad: [2]int{2, 1}}, 1000)
	require.Equal(t, "stepped on the bad square", r.wrong)
	require.Len(t, r.trace, 4) // the start and three steps
	require.Equal(t, "start: [0 0]", r.trace[0])
	require.Contains(t, r.trace[3], "[2 1]")
	require.False(t, r.complete)
}

func TestExploreSaysWhenItStoppedAtTheLimit(t *testing.T) {
	r := explore(grid{side: 4}, 24)
	require.Equal(t, 24, r.states)
	require.False(t, r.complete)
	require.True(t, explore(grid{side: 4}, 25).complete)
}

func TestExploreKeepsOneOfStatesThatDifferInNamesOnly(t *testing.T) {
	r := explore(foldedGrid{grid{side: 4}}, 1000)
	require.Equal(t, 15, r.states)
	require.True(t, r.complete)
}

func TestExploreTracesThroughStatesThatDifferInNamesOnly(t *testing.T) {
	r := explore(foldedGrid{grid{side: 4, bad: [2]int{2, 1}}}, 1000)
	require.Len(t, r.trace, 4)
	require.Contains(t, r.trace[3], "[2 1]")
}

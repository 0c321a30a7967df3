package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// doing returns a run whose verdict is known.
func doing(name string, convicted bool, wrong string) run {
	return run{name, "a claim", convicted, func(int) result { return result{wrong: wrong, trace: []string{"start: s"}} }}
}

func TestWalkCountsSurprises(t *testing.T) {
	all := []run{
		doing("a/holds", false, ""),
		doing("a/convicted", true, "wrong"),
		doing("b/wrongly holds", true, ""),
		doing("b/wrongly convicted", false, "wrong"),
	}
	var out strings.Builder
	require.Equal(t, 2, walk(&out, all, regexp.MustCompile(""), 1, false))
	require.Equal(t, 2, strings.Count(out.String(), "NOT as expected"))
	require.Zero(t, walk(&out, all, regexp.MustCompile("^a/"), 1, false))
	require.Equal(t, 1, walk(&out, all, regexp.MustCompile("convicted$"), 1, false))
}

func TestWalkShowsTheTraceOfASurprise(t *testing.T) {
	var out strings.Builder
	walk(&out, []run{doing("a", true, "wrong")}, regexp.MustCompile(""), 1, false)
	require.NotContains(t, out.String(), "start: s")
	walk(&out, []run{doing("a", true, "wrong")}, regexp.MustCompile(""), 1, true)
	require.Equal(t, 1, strings.Count(out.String(), "start: s"))
	walk(&out, []run{doing("a", false, "wrong")}, regexp.MustCompile(""), 1, false)
	require.Equal(t, 2, strings.Count(out.String(), "start: s"))
}

func TestEveryRunHasItsOwnName(t *testing.T) {
	names := map[string]bool{}
	for _, r := range runs() {
		require.False(t, names[r.name], r.name)
		names[r.name] = true
	}
}

package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The kept seeds break no promise. Each schedule has its own part in what is checked, so all must have had something to do.
func TestKeptSeedsBreakNoPromise(t *testing.T) {
	text, err := os.ReadFile("testdata/seeds.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		word, why, _ := strings.Cut(line, " ")
		seed, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			continue // a comment
		}
		t.Run(word+" "+strings.TrimSpace(why), func(t *testing.T) {
			stats, found := playAll(t, settings{first: seed, count: 1}, func(*Stats, []Violation) {})
			require.Empty(t, found)
			require.Positive(t, stats.Acquired)
		})
	}
}

package redlock

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A promise whose test was renamed or removed is a promise without proof.
func TestEveryTestThatTheDocsNameExists(t *testing.T) {
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			tests.Write(source)
		}
		return err
	}))
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, docs)
	named := 0
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		// In backquotes: an example of a reader's own test has none.
		for _, name := range regexp.MustCompile("`(Test[A-Z]\\w+)").FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(tests.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which is not there", doc, name[1])
			}
		}
	}
	require.Greater(t, named, 30)
}

// The table of faults has a test in each row.
func TestEveryFaultInTheDocsNamesATest(t *testing.T) {
	text, err := os.ReadFile("docs/safety.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "| fault | what the caller sees | test |\n|---|---|---|\n")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.SplitSeq(table, "\n") {
		require.Contains(t, row, "`Test", row)
	}
}

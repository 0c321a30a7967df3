package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEveryMutantIsConvicted takes rules out of a copy of the library, one at a time, and plays the schedule that must
// show it. MUTANT=name does so for some of them, SEARCH=n looks for a seed among n.
func TestEveryMutantIsConvicted(t *testing.T) {
	only, search := os.Getenv("MUTANT"), number("SEARCH", 0)
	if os.Getenv("MUTANTS") == "" && only == "" {
		t.Skip("make mutants")
	}
	dir := t.TempDir()
	copyTree(t, "../..", dir)
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			exe := filepath.Join(dir, "mutant.test")
			build(t, dir, exe, m.edits)
			s := settings{first: m.seed, count: 1}
			if search > 0 {
				s = settings{first: number(envSeed, 1), count: search}
			}
			began := time.Now()
			v := convict(t, exe, s)
			require.NotNil(t, v, "it survived")
			fmt.Printf("%-50s %6d  %-30s %v\n", m.name, v.Seed, v.Rule, time.Since(began).Round(time.Second/10))
			if os.Getenv("V") != "" {
				fmt.Println("    ", v.Text)
			}
		})
	}
}

// A rule that is written differently by now would be taken out of nothing; make mutants is too slow to find that out with
// every run of the tests.
func TestEveryMutantHasARuleToTakeOut(t *testing.T) {
	require.GreaterOrEqual(t, len(mutants), 20)
	for _, m := range mutants {
		require.NotZero(t, m.seed, m.name)
		for _, e := range m.edits {
			_ = mutated(t, "../..", e)
		}
	}
}

// mutated is a file without its rule.
func mutated(t *testing.T, dir string, e edit) string {
	text, err := os.ReadFile(filepath.Join(dir, e.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), e.old), "%s must have this once: %s", e.file, e.old)
	return strings.Replace(string(text), e.old, e.new, 1)
}

// copyTree copies what the simulator is built from.
func copyTree(t *testing.T, from, to string) {
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "scripts/*", "internal/*/*.go", "redlocktest/go.mod", "redlocktest/go.sum", "redlocktest/*.go",
		"integration/go.mod", "integration/go.sum", "integration/sim/*.go"} {
		names, err := filepath.Glob(filepath.Join(from, pattern))
		require.NoError(t, err)
		for _, name := range names {
			rel, err := filepath.Rel(from, name)
			require.NoError(t, err)
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(to, rel), text, 0o644))
		}
	}
}

// build makes the simulator of a mutant, and puts the library right again.
func build(t *testing.T, dir, exe string, edits []edit) {
	for _, e := range edits {
		path := filepath.Join(dir, e.file)
		require.NoError(t, os.WriteFile(path, []byte(mutated(t, dir, e)), 0o644))
		t.Cleanup(func() {
			original, err := os.ReadFile(filepath.Join("../..", e.file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, original, 0o644))
		})
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+os.Getenv(envOverlay), "-o", exe, "./sim")
	cmd.Dir = filepath.Join(dir, "integration")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// convict is the first violation that a simulator finds; nil if it finds none.
func convict(t *testing.T, exe string, s settings) *Violation {
	outcomes := make(chan outcome)
	stop := make(chan struct{})
	go func() { worker(t, exe, s, 0, 1, outcomes, stop); close(outcomes) }()
	var first *Violation
	for o := range outcomes {
		if len(o.Found) > 0 && first == nil {
			first = &o.Found[0]
			close(stop)
		}
	}
	return first
}

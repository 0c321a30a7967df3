package redlocktest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecordsComeInTheOrderOfTheirTimes(t *testing.T) {
	h := NewHistory()
	h.Add(Record{At: 3, Text: "c"})
	h.Add(Record{At: 1, Text: "a"})
	h.Add(Record{At: 3, Text: "d"})
	h.Add(Record{At: 2, Text: "b"})
	before := h.Now()
	h.Add(Record{Text: "now"})
	var texts []string
	for _, r := range h.Records() {
		texts = append(texts, r.Text)
	}
	require.Equal(t, []string{"a", "b", "c", "d", "now"}, texts, "those of one time as they were added")
	require.GreaterOrEqual(t, h.Records()[4].At, before)
	require.LessOrEqual(t, h.Records()[4].At, h.Now())
}

func TestManyGoroutinesRecordInOneHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	file, err := OpenHistory(path)
	require.NoError(t, err)
	for name, h := range map[string]*History{"memory": NewHistory(), "file": file} {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 500 {
					h.Add(Record{Kind: Acquired, Client: "a", Resources: []string{"r"}})
				}
			})
		}
		all.Wait()
		require.NoError(t, h.Err(), name)
		require.Len(t, h.Records(), 4000, name)
	}
	require.NoError(t, file.Close())
}

// The child processes of the tests below record in the file that they are given.
func init() {
	path := os.Getenv("REDLOCKTEST_HISTORY")
	if path == "" {
		return
	}
	h, err := OpenHistory(path)
	if err != nil {
		panic(err)
	}
	for i := int64(1); ; i++ {
		h.Add(Record{Kind: Wrote, Client: os.Getenv("REDLOCKTEST_NAME"), Value: i, Text: strings.Repeat(`"{"at":`, 50)})
		_, _ = os.Stdout.WriteString("x") // one for each that is recorded
		if i == 2000 && os.Getenv("REDLOCKTEST_NAME") != "killed" {
			os.Exit(0)
		}
	}
}

func TestProcessesShareAFileAndAKilledOneLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	written := map[string]*bytes.Buffer{"a": {}, "b": {}, "killed": {}}
	running := map[string]*exec.Cmd{}
	for name, out := range written {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "REDLOCKTEST_HISTORY="+path, "REDLOCKTEST_NAME="+name)
		c.Stdout = out
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill() })
		running[name] = c
	}
	require.NoError(t, running["a"].Wait())
	require.NoError(t, running["killed"].Process.Kill())
	require.Error(t, running["killed"].Wait())
	require.NoError(t, running["b"].Wait())

	h, err := ReadHistory(path)
	require.NoError(t, err)
	last := map[string]int64{}
	for _, r := range h.Records() {
		require.Equal(t, last[r.Client]+1, r.Value, "in the order in which they were recorded")
		last[r.Client] = r.Value
	}
	require.EqualValues(t, 2000, last["a"])
	require.EqualValues(t, 2000, last["b"])
	require.Positive(t, written["killed"].Len())
	require.GreaterOrEqual(t, last["killed"], int64(written["killed"].Len()))
}

func TestALineThatWasCutOffIsLeftOutAndCounted(t *testing.T) {
	whole := func(text string) string {
		b, _ := json.Marshal(Record{At: 1, Kind: Fault, Text: text})
		return string(b)
	}
	for name, c := range map[string]struct {
		file  string
		texts []string
		torn  int
		bad   bool
	}{
		"nothing wrong":       {file: whole("a") + "\n" + whole("b") + "\n", texts: []string{"a", "b"}},
		"the last one":        {file: whole("a") + "\n" + whole("b")[:20], texts: []string{"a"}, torn: 1},
		"all but the newline": {file: whole("a") + "\n" + whole("b"), texts: []string{"a", "b"}},
		"another went on":     {file: whole("a")[:20] + whole("b") + "\n" + whole("c") + "\n", texts: []string{"b", "c"}, torn: 1},
		"one byte":            {file: "{" + whole("b") + "\n", texts: []string{"b"}, torn: 1},
		"quotes in a text":    {file: whole(`{"at":`) + "\n", texts: []string{`{"at":`}},
		"not a record":        {file: whole("a") + "\nhello\n", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			h, err := ReadHistory(path)
			if c.bad {
				require.ErrorContains(t, err, "line 2")
				return
			}
			require.NoError(t, err)
			var texts []string
			for _, r := range h.Records() {
				texts = append(texts, r.Text)
			}
			require.Equal(t, c.texts, texts)
			require.Equal(t, c.torn, h.Torn())
			require.Equal(t, c.torn, h.Summary().Torn)
		})
	}
}

func TestAWriteThatFailedIsNotForgotten(t *testing.T) {
	h, err := OpenHistory(filepath.Join(t.TempDir(), "history"))
	require.NoError(t, err)
	require.NoError(t, h.file.out.Close())
	h.Add(Record{Kind: Ended})
	require.ErrorIs(t, h.Err(), os.ErrClosed)
	require.Error(t, h.Close())
}

func TestFilesAreMergedByTime(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i, times := range [][]time.Duration{{1, 4}, {2, 3}} {
		path := filepath.Join(dir, itoa(i))
		h, err := OpenHistory(path)
		require.NoError(t, err)
		for _, at := range times {
			h.Add(Record{At: at, Kind: Checked})
		}
		require.NoError(t, h.Close())
		paths = append(paths, path)
	}
	h, err := ReadHistory(paths...)
	require.NoError(t, err)
	var times []time.Duration
	for _, r := range h.Records() {
		times = append(times, r.At)
	}
	require.Equal(t, []time.Duration{1, 2, 3, 4}, times)
	_, err = ReadHistory(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

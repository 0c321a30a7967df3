package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Settings of a run, from the environment.
const (
	envSeed      = "SEED"      // of the first schedule; default 1
	envSchedules = "SCHEDULES" // how many; default 20
	envDuration  = "DURATION"  // go on for that long instead
	envTrace     = "TRACE"     // print what happened
	envClass     = "CLASS"     // schedules of this class alone
	envWorker    = "SIM_WORKER"
	envStep      = "SIM_STEP"
	envOverlay   = "SIM_OVERLAY" // what makes a mutant's simulator exact
)

func number(env string, other uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(env), 10, 64); err == nil {
		return n
	}
	return other
}

// settings are the seeds to play, and for how long at most.
type settings struct {
	first, count uint64
	duration     time.Duration // 0: all of them
}

func fromEnvironment(t *testing.T) settings {
	s := settings{first: number(envSeed, 1), count: number(envSchedules, 20)}
	if d := os.Getenv(envDuration); d != "" {
		var err error
		s.duration, err = time.ParseDuration(d)
		require.NoError(t, err)
		s.count = 1 << 40
	}
	return s
}

// TestSimulation plays schedules on all processors: each in a process of its own that uses one of them, for what one
// goroutine does must not depend on what another schedule does.
func TestSimulation(t *testing.T) {
	if testing.Short() && os.Getenv(envSeed) == "" {
		t.Skip("short")
	}
	if os.Getenv(envTrace) != "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in a worker, or the schedule would be another
		tr := &trace{}
		o := play(t, number(envSeed, 1), tr)
		for _, l := range tr.lines {
			fmt.Println(l)
		}
		fmt.Print(o.Stats.Report(0, o.Found))
		require.Empty(t, o.Found)
		return
	}
	began := time.Now()
	stats, found := playAll(t, fromEnvironment(t), func(s *Stats, found []Violation) {
		fmt.Printf("%8v  %7d schedules  %9d acquisitions  %d violations\n", time.Since(began).Round(time.Second), s.Schedules, s.Acquired, len(found))
	})
	fmt.Print(stats.Report(time.Since(began), found))
	require.Empty(t, found)
}

// playAll spreads seeds over worker processes and calls tell every ten seconds.
func playAll(t *testing.T, s settings, tell func(*Stats, []Violation)) (*Stats, []Violation) {
	workers := min(uint64(runtime.NumCPU()), s.count)
	outcomes := make(chan outcome)
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() { worker(t, os.Args[0], s, i, workers, outcomes, nil) })
	}
	go func() { running.Wait(); close(outcomes) }()
	stats := NewStats()
	var found []Violation
	ticker := time.NewTicker(10 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case o, ok := <-outcomes:
			if !ok {
				return stats, found
			}
			if o.Stats != nil {
				stats.Add(o.Stats)
			}
			for _, v := range o.Found {
				fmt.Println(v)
			}
			found = append(found, o.Found...)
		case <-ticker.C:
			tell(stats, found)
		}
	}
}

// stuckAfter is how long a schedule may take in real time. One that never ends, in which virtual time stands still, is a
// violation too.
const stuckAfter = 3 * time.Minute

// worker plays every step-th seed in a process of the given simulator until stop is closed, and reads what comes of it.
func worker(t *testing.T, exe string, s settings, i, step uint64, outcomes chan<- outcome, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	cmd := exec.CommandContext(ctx, exe, "-test.run", "^TestWorker$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", envWorker+"=1", envSeed+"="+strconv.FormatUint(s.first+i, 10),
		envStep+"="+strconv.FormatUint(step, 10), envSchedules+"="+strconv.FormatUint((s.count-i+step-1)/step, 10), envDuration+"="+s.duration.String())
	cmd.ExtraFiles = []*os.File{write}
	var said beginning
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	_ = write.Close()
	next := s.first + i
	stuck := time.AfterFunc(stuckAfter, cancel)
	lines := bufio.NewScanner(read)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		stuck.Reset(stuckAfter)
		var o outcome
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			t.Error(err)
			return
		}
		next = o.Seed + step
		outcomes <- o
		select {
		case <-stop:
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return
		default:
		}
	}
	stuck.Stop()
	if err := cmd.Wait(); err != nil {
		outcomes <- outcome{Seed: next, Found: []Violation{{Seed: next, Rule: "did not end", Text: err.Error() + "\n" + said.String()}}}
	}
}

// beginning keeps the beginning of what a process says: the goroutine that went wrong comes first.
type beginning struct{ bytes.Buffer }

const enough = 4 << 10

func (t *beginning) Write(p []byte) (int, error) {
	_, _ = t.Buffer.Write(p[:min(len(p), max(0, enough-t.Len()))])
	return len(p), nil
}

// TestWorker is the other side of worker.
func TestWorker(t *testing.T) {
	if os.Getenv(envWorker) == "" {
		t.Skip("part of TestSimulation")
	}
	out := json.NewEncoder(os.NewFile(3, "outcomes"))
	step, count := number(envStep, 1), number(envSchedules, 1)
	duration, _ := time.ParseDuration(os.Getenv(envDuration))
	began := time.Now()
	only := class(os.Getenv(envClass))
	for i := range count {
		if only != "" && newPlan(number(envSeed, 1)+i*step).Class != only {
			continue
		}
		if duration > 0 && time.Since(began) > duration {
			return
		}
		require.NoError(t, out.Encode(play(t, number(envSeed, 1)+i*step, nil)))
	}
}

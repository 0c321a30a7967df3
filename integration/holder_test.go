package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// A holder is a process of its own with one pool, so that it can be frozen. It is this test binary, started again: it
// obeys the lines on its standard input and answers each with a report.

const holderEnv = "REDLOCK_TEST_HOLDER" // the URLs, separated by spaces
const holderTTLEnv = "REDLOCK_TEST_HOLDER_TTL"
const holderGuardEnv = "REDLOCK_TEST_HOLDER_GUARD" // none if it is not set

// report is what a holder knows about its lock.
type report struct {
	Held  bool   // the last try succeeded
	Token string // of that lock
	Fence uint64 // of that lock
	Err   string // of the last try, or the lock's
	Valid bool   // at the time of the report
	Wrote bool   // the last write was taken
	Stale bool   // it was refused for its fence

	Calls   int           // of Valid so far
	Wrong   time.Duration // how long after the deadline Valid was still true, at worst
	Frozen  time.Duration // the longest time between two calls of Valid
	Revived bool          // Valid was true after such a gap longer than the TTL, or after it had been false
	Freed   time.Time     // when the release began
	Told    bool          // of the loss of another lock, whose validity nobody asks for
	Late    time.Duration // how long after its deadline it was
}

// holder is the main function of a holder process.
func holder() {
	ttl, _ := time.ParseDuration(os.Getenv(holderTTLEnv))
	guard, _ := time.ParseDuration(os.Getenv(holderGuardEnv))
	p, err := redlock.Open(strings.Fields(os.Getenv(holderEnv)), redlock.WithTTL(ttl), redlock.WithRestartGuard(guard))
	if err != nil {
		panic(err)
	}
	defer func() { _ = p.Close() }()
	w := watch{ttl: ttl}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		words := strings.Fields(commands.Text())
		switch words[0] {
		case "warm":
			for connect(p) != nil {
				time.Sleep(5 * time.Millisecond)
			}
		case "try":
			l, err := p.TryLock(bg, "a")
			told, _ := p.TryLock(bg, "told")
			w.begin(l, told, err)
		case "hold":
			l, err := p.Lock(bg, "a")
			w.begin(l, nil, err)
		case "free":
			w.free()
		case "queue": // the answer comes when it is its turn
			l, err := p.Lock(bg, "a", redlock.WithFair())
			w.begin(l, nil, err)
		case "write": // without asking whether the lock is valid: that was before
			w.write(words[1], words[2])
		case "own":
			w.own(p, words[1], words[2])
		}
		answer, _ := json.Marshal(w.report())
		fmt.Println(string(answer))
	}
}

// watch calls Valid all the time.
type watch struct {
	ttl time.Duration

	mu    sync.Mutex // guards the fields below
	l     *redlock.Lock
	r     report
	until time.Time
}

func (w *watch) begin(l, told *redlock.Lock, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.l, w.r = l, report{Held: err == nil}
	if err != nil {
		w.r.Err = err.Error()
		return
	}
	w.r.Token, w.r.Fence = l.Token(), l.Fence()
	w.until = deadline(l)
	go w.look()
	if told != nil {
		go w.hear(told)
	}
}

// free gives the lock back; looking at it goes on.
func (w *watch) free() {
	freed := time.Now()
	err := w.l.Unlock(bg)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.r.Held, w.r.Freed = err != nil, freed
}

// look never ends: the process does.
func (w *watch) look() {
	last := time.Now()
	wasFalse := false
	for ; ; time.Sleep(time.Millisecond) {
		asked := time.Now()
		valid := w.l.Valid()
		gap := asked.Sub(last)
		last = asked
		w.mu.Lock()
		if valid {
			if at := deadline(w.l); at.After(w.until) {
				w.until = at
			}
			w.r.Wrong = max(w.r.Wrong, asked.Sub(w.until)-accuracy)
			w.r.Revived = w.r.Revived || wasFalse || gap > w.ttl
		}
		wasFalse = wasFalse || !valid
		w.r.Calls++
		w.r.Frozen = max(w.r.Frozen, gap)
		w.mu.Unlock()
	}
}

// hear waits for a loss. The deadline is read often enough not to miss a renewal.
func (w *watch) hear(l *redlock.Lock) {
	until := deadline(l)
	for {
		select {
		case <-l.Lost():
			now := time.Now()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.r.Told, w.r.Late = true, now.Sub(until)
			return
		case <-time.After(time.Millisecond):
			if at := deadline(l); at.After(until) {
				until = at
			}
		}
	}
}

func (w *watch) report() report {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l != nil {
		w.r.Valid = w.l.Valid()
		if err := w.l.Err(); err != nil {
			w.r.Err = err.Error()
		}
	}
	return w.r
}

// process is a holder as its test sees it.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.Writer
	answers chan report
}

// holder starts a holder on the given nodes, all of them connected. It is killed at the end of the test.
func (r *rig) holder(urls []string, ttl time.Duration) *process {
	t := r.t
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+strings.Join(urls, " "), holderTTLEnv+"="+ttl.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	h := &process{t: t, cmd: cmd, in: in, answers: make(chan report)}
	var reading sync.WaitGroup
	reading.Go(func() { // ends with the process
		defer close(h.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var answer report
			if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
				t.Errorf("the holder says %q", lines.Text())
				continue
			}
			h.answers <- answer
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range h.answers { // nobody asked for it
		}
		reading.Wait()
		_ = cmd.Wait()
	})
	h.ask("warm")
	return h
}

// kill is kill -9.
func (h *process) kill() {
	h.t.Helper()
	require.NoError(h.t, h.cmd.Process.Kill())
	eventually(h.t, patience, "it has ended", func() error {
		select {
		case _, open := <-h.answers:
			return is(!open)
		default:
			return errNotYet
		}
	})
}

// tell sends a command; its answer is for hear.
func (h *process) tell(command string) {
	h.t.Helper()
	_, err := fmt.Fprintln(h.in, command)
	require.NoError(h.t, err)
}

func (h *process) hear() report {
	h.t.Helper()
	select {
	case r, ok := <-h.answers:
		require.True(h.t, ok, "the holder has ended")
		return r
	case <-time.After(patience):
		h.t.Fatal("the holder does not answer")
		return report{}
	}
}

func (h *process) ask(command string) report {
	h.t.Helper()
	h.tell(command)
	return h.hear()
}

// freeze returns once the holder stands still.
func (h *process) freeze() {
	h.t.Helper()
	h.stop()
	eventually(h.t, patience, "it stands still", func() error {
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(h.cmd.Process.Pid)).Output()
		if err == nil && !strings.HasPrefix(string(state), "T") {
			err = fmt.Errorf("it is in state %s", state)
		}
		return err
	})
}

// stop is freeze without waiting for the kernel to have done it.
func (h *process) stop() {
	if err := h.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		h.t.Error(err)
	}
}

func (h *process) thaw() {
	if err := h.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		h.t.Error(err)
	}
}

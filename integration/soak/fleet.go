package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// endPatience is how long a client process may take to give everything back.
const endPatience = 15 * time.Second

// member is one client of the soak: a process, and after a kill another one in its place. It implements nemesis.Client;
// calls for one member do not overlap.
type member struct {
	base    assignment           // this group is set by newMember, then read-only
	dir     string               // of the histories
	history *redlocktest.History // the soak's own

	cmd    *exec.Cmd     // this group belongs to the one call under way
	exited chan struct{} // closed once the process has ended and was waited for
	run    int

	mu      sync.Mutex // guards the fields below
	past    tally      // of processes that have ended
	now     tally
	asked   map[syscall.Signal]bool // what the process was sent
	byOwn   bool                    // the last process ended by itself
	crashed []string                // all that did: their status, and the last that they said
	ended   time.Duration
}

func newMember(a assignment, dir string, h *redlocktest.History) *member {
	return &member{base: a, dir: dir, history: h}
}

// Start starts a process. It dies with this one, whatever happens: the kernel sees to that.
func (m *member) Start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	a := m.base
	a.Run = m.run
	m.run++
	a.History = filepath.Join(m.dir, fmt.Sprintf("%s.%d.jsonl", a.Name, a.Run))
	config, err := json.Marshal(a)
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), clientEnv+"="+string(config))
	last := &tail{}
	cmd.Stderr = io.MultiWriter(os.Stderr, last)
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.asked, m.byOwn = map[syscall.Signal]bool{}, false
	m.mu.Unlock()
	started, exited := make(chan error), make(chan struct{})
	go func() { // ends with the process
		// The kernel takes the end of the thread that forked for the parent's death.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		m.listen(json.NewDecoder(bufio.NewReader(out)))
		_ = cmd.Wait() // its state says more
		m.over(a, cmd.ProcessState, last)
	}()
	if err := <-started; err != nil {
		return err
	}
	m.cmd, m.exited = cmd, exited
	return nil
}

// over notes that a process has ended. One that was not asked to is remembered, whatever is done to its successors.
func (m *member) over(a assignment, state *os.ProcessState, last *tail) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = m.history.Now()
	m.past, m.now = m.past.plus(m.now), tally{}
	if m.byOwn = !m.wanted(state); !m.byOwn {
		return
	}
	m.crashed = append(m.crashed, fmt.Sprintf("process %d of %s ended by itself: %v: %s", a.Run, a.Name, state, last))
	m.history.Add(redlocktest.Record{At: m.ended, Kind: redlocktest.Ended, Client: a.Name, Text: "crashed"})
}

// wanted says whether a process ended as it was asked to. m.mu is held.
func (m *member) wanted(state *os.ProcessState) bool {
	if state.Success() {
		return m.asked[syscall.SIGTERM] || m.base.Holds > 0
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	return status.Signaled() && m.asked[status.Signal()]
}

// crashes says how processes ended that were not asked to.
func (m *member) crashes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.crashed)
}

// tail keeps the last of what is written to it: the reason of a panic is above its stacks, so it keeps a good deal.
type tail struct{ text []byte }

const tailMost = 8000

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailMost):]
	return len(p), nil
}

func (t *tail) String() string { return string(t.text) }

// listen reads what the process says of itself until it ends.
func (m *member) listen(in *json.Decoder) {
	for {
		var t tally
		if in.Decode(&t) != nil {
			return
		}
		m.mu.Lock()
		m.now = t
		m.mu.Unlock()
	}
}

func (m *member) tally() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past.plus(m.now)
}

func (t tally) plus(o tally) tally {
	return tally{t.Acquired + o.Acquired, t.Failed + o.Failed, t.Lost + o.Lost, t.Writes + o.Writes, t.Refused + o.Refused}
}

func (m *member) Freeze() error { return m.signal(syscall.SIGSTOP) }

func (m *member) Thaw() error { return m.signal(syscall.SIGCONT) }

// Kill ends the process as it stands, and records that it has ended.
func (m *member) Kill() error {
	if err := m.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-m.exited
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byOwn {
		return fmt.Errorf("%s had ended by itself: %w", m.base.Name, os.ErrProcessDone)
	}
	m.history.Add(redlocktest.Record{At: m.ended, Kind: redlocktest.Ended, Client: m.base.Name, Text: "killed"})
	return nil
}

// signal never reaches a process that took over the pid: until exited is closed, the pid is ours.
func (m *member) signal(sig syscall.Signal) error {
	if m.cmd == nil {
		return os.ErrProcessDone
	}
	select {
	case <-m.exited:
		return fmt.Errorf("%s has ended: %w", m.base.Name, os.ErrProcessDone)
	default:
	}
	m.mu.Lock()
	m.asked[sig] = true
	m.mu.Unlock()
	return m.cmd.Process.Signal(sig)
}

// end asks the process to give everything back and waits for that. A second call does nothing. How it ended is up to
// crashes.
func (m *member) end() error {
	if m.cmd == nil {
		return nil
	}
	select {
	case <-m.exited:
	default:
		_ = m.signal(syscall.SIGCONT)
		_ = m.signal(syscall.SIGTERM)
		select {
		case <-m.exited:
		case <-time.After(endPatience):
			return errors.Join(fmt.Errorf("%s did not end in %v", m.base.Name, endPatience), m.Kill())
		}
	}
	return nil
}

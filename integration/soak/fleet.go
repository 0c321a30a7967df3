package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

	mu     sync.Mutex // guards the fields below
	past   tally      // of processes that have ended
	now    tally
	status error // of the last process, once it has ended
	ended  time.Duration
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
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
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
		err = cmd.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.status, m.ended = err, m.history.Now()
		m.past, m.now = m.past.plus(m.now), tally{}
	}()
	if err := <-started; err != nil {
		return err
	}
	m.cmd, m.exited = cmd, exited
	return nil
}

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
		return m.cmd.Process.Signal(sig)
	}
}

// end asks the process to give everything back and waits for that. A second call does nothing.
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status != nil {
		return fmt.Errorf("%s: %w", m.base.Name, m.status)
	}
	return nil
}

package servers

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Clocks that a test sets. An embedded node has one anyway. A process gets a library that stands between it and the C
// library's clock, and that is told by a file what to show; a container's own redis-server cannot be given one.

//go:embed clockshim.c
var clockShim []byte

// clockNode is a node whose wall clock can be set.
type clockNode interface {
	node
	stepClock(d time.Duration) error
	clockRate(share float64) error
}

// clockMissing says why processes cannot have a clock of their own here.
func clockMissing() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("a clock of its own (WithClock) needs LD_PRELOAD as on Linux, not %s", runtime.GOOS)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		return fmt.Errorf("a clock of its own (WithClock) needs a C compiler (%w): install one (apt-get install gcc libc6-dev)", err)
	}
	return nil
}

// requireClock skips the test where it can have no clocks, and fails it where everything is to be tested.
func requireClock(t testing.TB, p Provider) {
	t.Helper()
	if p != Processes {
		return
	}
	switch err := clockMissing(); {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("servers: %v", err)
	default:
		t.Skipf("servers: %v", err)
	}
}

// buildShim compiles the library into a directory and returns its path.
func buildShim(dir string) (string, error) {
	source, library := filepath.Join(dir, "clockshim.c"), filepath.Join(dir, "clockshim.so")
	if err := os.WriteFile(source, clockShim, 0o644); err != nil {
		return "", err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w:\n%s", err, out)
	}
	return library, nil
}

// processClock is what the shim of one process is told. It outlives the process, as a machine's clock does.
type processClock struct {
	library, path string // set by newProcessClock, then read-only

	version, offset, ppm, since int64 // as in clockshim.c; changed by one fault at a time
}

func newProcessClock(library, dir string) (*processClock, error) {
	c := &processClock{library: library, path: filepath.Join(dir, "clock")}
	return c, os.WriteFile(c.path, make([]byte, 4*8), 0o644)
}

// env is what a server is started with besides the test's own environment.
func (c *processClock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "REDLOCK_CLOCK=" + c.path}
}

func (c *processClock) step(d time.Duration) error {
	c.offset += d.Microseconds()
	return c.write()
}

// rate lets the clock run on from what it shows now.
func (c *processClock) rate(share float64) error {
	now := time.Now().UnixMicro()
	c.offset += (now - c.since) * c.ppm / 1_000_000
	c.ppm, c.since = int64(share*1_000_000), now
	return c.write()
}

// write shows the process nothing half done: it does not believe an odd version.
func (c *processClock) write() error {
	file, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	version := func() error {
		c.version++
		_, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.version)), 0)
		return err
	}
	var rest []byte
	for _, v := range []int64{c.offset, c.ppm, c.since} {
		rest = binary.NativeEndian.AppendUint64(rest, uint64(v))
	}
	err = version()
	if err == nil {
		_, err = file.WriteAt(rest, 8)
	}
	return errors.Join(err, version(), file.Close())
}

var errNoClock = errors.New("its clock is the machine's; start it with WithClock")

func (p *process) stepClock(d time.Duration) error {
	if p.clock == nil {
		return errNoClock
	}
	return p.clock.step(d)
}

func (p *process) clockRate(share float64) error {
	if p.clock == nil {
		return errNoClock
	}
	return p.clock.rate(share)
}

func (e embeddedNode) stepClock(d time.Duration) error {
	e.StepClock(d)
	return nil
}

func (e embeddedNode) clockRate(float64) error {
	return errors.New("an embedded node's clock runs at the machine's rate; take a process")
}

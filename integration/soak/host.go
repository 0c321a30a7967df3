package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/seed71a1c8e3/redlock/integration/nemesis"
)

// host stands for a test where there is none: servers that it starts end with [host.end]. What would end a test is a
// panic with a [nemesis.Failure], which the nemesis takes for a fault that could not be brought about.
type host struct {
	testing.TB // nil: whatever is not below is not called

	mu       sync.Mutex // guards the fields below
	cleanups []func()
	failed   []string
}

func (h *host) Helper()                   {}
func (h *host) Name() string              { return "soak" }
func (h *host) Logf(string, ...any)       {}
func (h *host) Failed() bool              { return false }
func (h *host) Fatalf(f string, a ...any) { panic(nemesis.Failure(fmt.Sprintf(f, a...))) }
func (h *host) Fatal(a ...any)            { panic(nemesis.Failure(fmt.Sprint(a...))) }
func (h *host) Skipf(f string, a ...any)  { h.Fatalf(f, a...) }

func (h *host) Errorf(f string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed = append(h.failed, fmt.Sprintf(f, a...))
}

func (h *host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cleanups = append(h.cleanups, f)
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "redlock-soak-")
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end ends everything that was started, and returns what went wrong with that.
func (h *host) end() error {
	var errs []error
	for _, f := range slices.Backward(h.cleanups) {
		errs = append(errs, attempt(f)) // one that fails does not keep the others from being done
	}
	h.cleanups = nil
	for _, text := range h.failed {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// attempt turns a failure of the host into an error.
func attempt(f func()) (err error) {
	defer func() {
		if failure, ok := recover().(nemesis.Failure); ok {
			err = failure
		}
	}()
	f()
	return nil
}

package redlocktest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
)

// What a Redis in trouble answers, word for word, for [Node.Fail].
const (
	OOM      = "OOM command not allowed when used memory > 'maxmemory'."
	MISCONF  = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error."
	READONLY = "READONLY You can't write against a read only replica."
	LOADING  = "LOADING Redis is loading the dataset in memory"
	BUSY     = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
	NOPERM   = "NOPERM User default has no permissions to run this command"
)

// setup are the commands that make a connection. Faults for "all" commands
// spare them, so that there is a connection on which to see the fault.
var setup = map[string]bool{"HELLO": true, "AUTH": true, "CLIENT": true, "SELECT": true}

// What happens to a reply.
const (
	dropNone = iota
	dropCut
	dropSilent
	replayed // no drop, but counted like one
)

// faults are a node's switches and counters for commands. They outlive its
// restarts.
type faults struct {
	mu       sync.Mutex        // guards the fields below; nothing is called under it
	failures map[string]string // command, or "" for all, to its error
	drops    []dropRule
	info     map[string]string
	counts   map[string]int64 // commands executed; "" is their sum
	counted  chan struct{}    // closed at the next count; nil if nobody waits
}

type dropRule struct {
	left     int
	how      int
	commands map[string]bool // empty: all but set-up
}

func newFaults() *faults {
	return &faults{failures: map[string]string{}, info: map[string]string{}, counts: map[string]int64{}}
}

// fail sets the error of the given commands, or of all; an empty one ends it.
func (f *faults) fail(reply string, commands []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(commands) == 0 {
		commands = []string{""}
		if reply == "" {
			clear(f.failures)
		}
	}
	for _, c := range commands {
		if c = strings.ToUpper(c); reply == "" {
			delete(f.failures, c)
		} else {
			f.failures[c] = reply
		}
	}
}

// failure returns the error that cmd must answer, or "". Faults for all
// commands count only if all is set.
func (f *faults) failure(cmd string, all bool) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reply, ok := f.failures[cmd]; ok {
		return reply
	}
	if all && !setup[cmd] {
		return f.failures[""]
	}
	return ""
}

// addDrop makes n replies to the given commands vanish; n = 0 ends all such rules.
func (f *faults) addDrop(how, n int, commands []string) {
	rule := dropRule{left: n, how: how, commands: map[string]bool{}}
	for _, c := range commands {
		rule.commands[strings.ToUpper(c)] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A rule replaces the one for the same commands, so the list stays as short as the test's imagination.
	kept := f.drops[:0]
	for _, d := range f.drops {
		if d.how != how || n > 0 && !maps.Equal(d.commands, rule.commands) {
			kept = append(kept, d)
		}
	}
	f.drops = kept
	if n > 0 {
		f.drops = append(f.drops, rule)
	}
}

// takeDrop says what must happen to the reply of cmd, and counts it.
func (f *faults) takeDrop(cmd string) int {
	return f.take(cmd, func(how int) bool { return how != replayed })
}

// takeReplay says whether cmd is to be executed twice, and counts it.
func (f *faults) takeReplay(cmd string) bool {
	return f.take(cmd, func(how int) bool { return how == replayed }) == replayed
}

func (f *faults) take(cmd string, wanted func(how int) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.drops {
		d := &f.drops[i]
		if d.left > 0 && wanted(d.how) && (d.commands[cmd] || len(d.commands) == 0 && !setup[cmd]) {
			d.left--
			return d.how
		}
	}
	return dropNone
}

func (f *faults) setInfo(field, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info[field] = value
}

func (f *faults) infoFields() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.info)
}

// count notes that cmd was executed.
func (f *faults) count(cmd string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[cmd]++
	f.counts[""]++
	if f.counted != nil {
		close(f.counted)
		f.counted = nil
	}
}

func (f *faults) requests(cmd string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[strings.ToUpper(cmd)]
}

// wait returns when cmd was executed n times in all, or when ctx ends.
func (f *faults) wait(ctx context.Context, cmd string, n int64) error {
	cmd = strings.ToUpper(cmd)
	for {
		f.mu.Lock()
		got := f.counts[cmd]
		if f.counted == nil {
			f.counted = make(chan struct{})
		}
		counted := f.counted
		f.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-counted:
		case <-ctx.Done():
			return fmt.Errorf("redlocktest: %d of %d requests %q: %w", got, n, cmd, context.Cause(ctx))
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/spf13/cobra"
)

const (
	defaultTTL   = 30 * time.Second
	defaultGuard = 30 * time.Second       // whatever the TTL: all users of the nodes must have the same
	minTTL       = 100 * time.Millisecond // below, there is no time to end a process in
	maxGrace     = 5 * time.Second        // of the default
	minGrace     = 30 * time.Millisecond
)

// runner is one use of run.
type runner struct {
	sources sources
	wait    time.Duration // negative: for ever
	ttl     time.Duration
	grace   time.Duration
	maxHold time.Duration // 0: no limit
	guard   time.Duration // 0: off
	label   string
	prefix  string
	say     *speaker

	labelled, bounded, graced, limited bool // which flags were given

	mu     sync.Mutex // guards the fields below, which the observer writes
	why    error      // the first renewal that failed since one that did not; later ones ask only what still answers
	told   time.Time  // when the last line about waiting was written
	shares bool       // stderr is a terminal: somebody is watching
}

func newRun(say *speaker) *cobra.Command {
	r := &runner{say: say, sources: sources{env: true}}
	cmd := &cobra.Command{
		Use:   "run KEY... -- COMMAND [ARG...]",
		Short: "Run a command under the lock of all KEYs",
		Long:  runHelp,
		Example: `  redlock run nightly-report -- ./report.sh
  redlock run --wait 0 account:1 account:2 -- transfer 1 2 100`,
		Args:                  func(cmd *cobra.Command, args []string) error { return checkArgs(cmd.ArgsLenAtDash(), args) },
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			r.labelled, r.bounded = f.Changed("label"), f.Changed("wait")
			r.graced, r.limited = f.Changed("grace"), f.Changed("max-hold")
			n := cmd.ArgsLenAtDash()
			return r.run(args[:n], args[n:])
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	r.sources.register(f)
	f.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock; 0 tries once (default: for ever)")
	f.DurationVar(&r.ttl, "ttl", defaultTTL, "the lock's lease, renewed every third of it")
	f.DurationVar(&r.grace, "grace", 0, "how long before the deadline the command gets TERM (default: a third of the TTL, at most 5s)")
	f.DurationVar(&r.maxHold, "max-hold", 0, "hold the lock no longer than this (default: as long as the command runs)")
	f.DurationVar(&r.guard, "guard", defaultGuard, "how long a restarted node has no vote; the same for all users of the nodes, at least every TTL; 0 is off")
	f.StringVar(&r.label, "label", "", "who holds it, for operators (default: host:pid)")
	f.StringVar(&r.prefix, "prefix", "lock:", "what stands before a key's name in Redis")
	return cmd
}

const runHelp = `Run waits for the lock of all KEYs together, runs COMMAND while it is held, and gives it
back. Everything after -- belongs to the command.

The nodes come from --nodes, from --nodes-file or from the environment variable
REDLOCK_NODES (separated by commas or white space), in this order; host:port is short for
redis://host:port. Passwords are refused in arguments.

The command is a process group of its own, with redlock's stdin, stdout and stderr; it gets
the terminal if stdin is one. It finds in its environment
  REDLOCK_KEYS      the keys, sorted, one a line
  REDLOCK_TOKEN     what the nodes store for this acquisition
  REDLOCK_FENCE     a number that rises with every ownership, for stores that refuse a lower one
  REDLOCK_DEADLINE  when the lock ends unless it is renewed, as of the start (RFC 3339)
and not REDLOCK_NODES, which may hold passwords.

If the lock is not renewed, the whole group gets TERM a grace before the deadline, and KILL a
third of the grace before it; both at once if the lock is lost earlier. When the command exits
by itself, what is left of its group gets TERM, and KILL a grace later, and only then is the
lock given back: nothing of the group works without it. A process that leaves the group
(setsid, a daemon) is not watched. Should redlock itself be killed, Linux kills the command
with it, but not the command's children.

TERM, INT, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are forwarded to the group; while still
waiting for the lock, the first six end redlock.

Exit codes: the command's own, or 128 + n if signal n ended it; and
  117  not acquired: held by another
  118  not acquired: too few nodes answered to know
  119  lost, or the command was ended before the lock could be; whatever it returned
  125  wrong arguments or configuration
  126  the command cannot be executed
  127  the command was not found
  128 + n  signal n ended the wait for the lock`

// checkArgs checks that there are keys, then --, then a command. dash is how many arguments precede the --, or -1.
func checkArgs(dash int, args []string) error {
	switch {
	case dash < 0:
		return exitf(exitUsage, "put -- between the keys and the command: redlock run KEY... -- COMMAND [ARG...]")
	case dash == 0:
		return exitf(exitUsage, "no key before the --: redlock run KEY... -- COMMAND [ARG...]")
	case dash == len(args) || args[dash] == "":
		return exitf(exitUsage, "no command after the --: redlock run KEY... -- COMMAND [ARG...]")
	}
	for _, key := range args[:dash] {
		if strings.ContainsAny(key, "\r\n") {
			return exitf(exitUsage, "a key holds a line break, which %s could not tell from two keys", envKeys)
		}
	}
	return nil
}

// checkTimes fills in the default grace and refuses what cannot work.
func (r *runner) checkTimes() error {
	if !r.graced {
		r.grace = min(r.ttl/3, maxGrace)
		if r.limited {
			r.grace = min(r.grace, r.maxHold/3)
		}
	}
	switch {
	case r.bounded && r.wait < 0:
		return exitf(exitUsage, "--wait %v: give 0 to try once, or leave it out to wait for ever", r.wait)
	case r.ttl < minTTL:
		return exitf(exitUsage, "--ttl %v: at least %v, for a command takes time to end", r.ttl, minTTL)
	case r.limited && r.maxHold < minTTL:
		return exitf(exitUsage, "--max-hold %v: at least %v, for a command takes time to end", r.maxHold, minTTL)
	case r.grace < minGrace:
		return exitf(exitUsage, "--grace %v: at least %v, for a command takes time to end", r.grace, minGrace)
	case r.grace > r.ttl/2:
		// The lock is renewed a third of the TTL after the last time, and that may take a while.
		return exitf(exitUsage, "--grace %v: at most half of the TTL of %v, or the command would be ended before the lock was renewed",
			r.grace, r.ttl)
	case r.limited && r.grace >= r.maxHold:
		return exitf(exitUsage, "--grace %v: must be less than the --max-hold of %v", r.grace, r.maxHold)
	}
	return nil
}

func (r *runner) run(keys, args []string) error {
	// 1. Whatever is wrong with the arguments, before anything is locked.
	if err := r.checkTimes(); err != nil {
		return err
	}
	cmd, err := find(args)
	if err != nil {
		return err
	}
	pool, err := r.open()
	if err != nil {
		return err
	}
	defer pool.Close()

	// 2. The lock.
	signals := catch(enders)
	lock, err := r.acquire(pool, keys, signals)
	if err != nil {
		return err
	}

	// 3. The command, and what is left of it.
	notify(signals, others)
	cmd.env = environment(os.Environ(), lock)
	s, err := r.supervise(lock, cmd, signals)

	// 4. In every case.
	lost := lock.Err()
	if e := lock.Unlock(context.Background()); e != nil && lost == nil && !errors.Is(e, redlock.ErrLost) {
		r.say.f("the lock was not given back and runs out within %v: %s", r.ttl, reasonText(e))
	}
	if err != nil {
		return err
	}
	return verdict(s, lost)
}

// open makes the pool; nothing is sent yet.
func (r *runner) open() (*redlock.Pool, error) {
	urls, err := r.sources.urls()
	if err != nil {
		return nil, err
	}
	if len(urls) == 0 {
		return nil, exitf(exitUsage, "no nodes: set %s, or give --nodes or --nodes-file", envNodes)
	}
	r.shares = isTerminal(os.Stderr)
	pool, err := redlock.Open(urls, r.options()...)
	if err != nil {
		return nil, exitf(exitUsage, "%s", reasonText(err))
	}
	return pool, nil
}

func (r *runner) options() []redlock.Option {
	opts := []redlock.Option{
		redlock.WithTTL(r.ttl),
		redlock.WithRestartGuard(r.guard),
		redlock.WithKeyPrefix(r.prefix),
		redlock.WithObserver(redlock.Observer{
			Denied:        r.denied,
			Renewed:       func(redlock.Event) { r.renewal(nil) },
			RenewalFailed: func(ev redlock.Event) { r.renewal(ev.Err) },
			Warning:       func(ev redlock.Event) { r.say.f("warning: %s", reasonText(ev.Err)) },
		}),
	}
	if r.labelled {
		opts = append(opts, redlock.WithLabel(r.label))
	}
	if r.limited {
		opts = append(opts, redlock.WithMaxHold(r.maxHold))
	}
	return opts
}

// denied says what a wait waits for, once a minute: always if the nodes are the reason, and else to a terminal only.
func (r *runner) denied(ev redlock.Event) {
	if r.bounded && r.wait == 0 || errors.Is(ev.Err, redlock.ErrHeld) && !r.shares {
		return
	}
	r.mu.Lock()
	quiet := !r.told.IsZero() && time.Since(r.told) < time.Minute
	if !quiet {
		r.told = time.Now()
	}
	r.mu.Unlock()
	if !quiet {
		r.say.f("waiting: %s", reasonText(ev.Err))
	}
}

func (r *runner) renewal(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || r.why == nil {
		r.why = err
	}
}

// reason is why the lock is about to end.
func (r *runner) reason() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.why != nil:
		return reasonText(r.why)
	case r.limited:
		return fmt.Sprintf("--max-hold %v is over", r.maxHold)
	}
	return "it was not renewed"
}

// catch makes signals end nothing by themselves.
func catch(which []os.Signal) chan os.Signal {
	signals := make(chan os.Signal, 64)
	notify(signals, which)
	// Its default would end redlock when it writes a message that nobody reads. Ignoring it instead would make the
	// command ignore it, too.
	signal.Notify(make(chan os.Signal, 1), brokenPipe)
	return signals
}

// notify asks for signals, but not for those that redlock was started to ignore, as by nohup.
func notify(signals chan os.Signal, which []os.Signal) {
	for _, sig := range which {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// interrupted is the cause of a wait that a signal ended.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return i.String() }

// acquire waits for the lock until it has it, --wait is over or a signal comes.
func (r *runner) acquire(pool *redlock.Pool, keys []string, signals <-chan os.Signal) (*redlock.Lock, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() {
		select {
		case sig := <-signals:
			cancel(interrupted{sig})
		case <-done:
		}
	})
	lock, err := r.ask(ctx, pool, keys)
	close(done)
	listener.Wait()

	var by interrupted
	if errors.As(context.Cause(ctx), &by) {
		if lock != nil {
			_ = lock.Unlock(context.Background())
		}
		number, _ := by.Signal.(syscall.Signal)
		return nil, exitf(exitSignal+int(number), "not acquired: %v while waiting", by.Signal)
	}
	cancel(nil)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, redlock.ErrHeld):
		return nil, exitf(exitHeld, "not acquired: %s", reasonText(err))
	case errors.Is(err, redlock.ErrNoQuorum):
		return nil, exitf(exitNoQuorum, "not acquired: %s", reasonText(err))
	}
	return nil, exitf(exitUsage, "%s", reasonText(err))
}

func (r *runner) ask(ctx context.Context, pool *redlock.Pool, keys []string) (*redlock.Lock, error) {
	if !r.bounded {
		return pool.MultiLock(ctx, keys)
	}
	if r.wait == 0 {
		return pool.TryMultiLock(ctx, keys)
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	return pool.MultiLock(ctx, keys)
}

// supervise runs the command until its whole group has ended.
func (r *runner) supervise(lock *redlock.Lock, cmd command, signals <-chan os.Signal) (*supervisor, error) {
	if err := lock.Err(); err != nil {
		return nil, exitf(exitLost, "%s; the command was not started", reasonText(err))
	}
	ch, err := start(cmd)
	if err != nil {
		return nil, err
	}
	s := &supervisor{lock: lock, child: ch, term: openTerminal(), signals: signals, grace: r.grace, reason: r.reason,
		say: r.say}
	s.watch()
	return s, nil
}

// verdict turns the end of a command into the end of redlock. lost is the lock's error at the end of the last process.
func verdict(s *supervisor, lost error) error {
	ending := fmt.Sprintf("it exited with %d", s.status.code)
	if s.status.signal != 0 {
		ending = fmt.Sprintf("it died of %v", s.status.signal)
	}
	switch {
	case !s.exited:
		return exitf(exitLost, "%s; the command still runs", reasonText(lost))
	case lost != nil:
		return exitf(exitLost, "%s; the command is over (%s)", reasonText(lost), ending)
	case s.ended:
		return exitf(exitLost, "the command was ended before its lock was lost (%s)", ending)
	}
	return &exitError{code: s.status.exit()}
}

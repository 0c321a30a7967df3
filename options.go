package redlock

import (
	"log/slog"
	"math"
	"os"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Defaults and limits of the options.
const (
	defaultTTL         = 30 * time.Second
	defaultNodeTimeout = 250 * time.Millisecond
	defaultFactor      = 0.01
	defaultFloor       = 2 * time.Millisecond
	defaultRetryMin    = 20 * time.Millisecond
	defaultRetryMax    = time.Second
	defaultPrefix      = "lock:"

	maxFactor    = 0.2
	maxLabel     = 64
	timeoutShare = 4 // a node timeout is at most this part of a TTL
)

// Option configures a pool. Every LockOption is an Option too: given to New or Open it is the pool's default.
type Option interface {
	configurePool(*poolOptions)
}

// LockOption configures one Lock call, or a pool's default for all of them.
type LockOption interface {
	Option
	configureLock(*lockOptions)
}

type poolOption func(*poolOptions)

func (f poolOption) configurePool(o *poolOptions) { f(o) }

type lockOption func(*lockOptions)

func (f lockOption) configureLock(o *lockOptions) { f(o) }
func (f lockOption) configurePool(o *poolOptions) { f(&o.lock) }

// lockOptions are what one level of options (a pool's or a call's) has set; zero means not set. A wrong value is kept
// as an error for the call that the option was given to.
type lockOptions struct {
	ttl, lease, maxHold time.Duration
	retryMin, retryMax  time.Duration
	label               string
	labelled            bool
	fair                bool
	err                 error
}

type poolOptions struct {
	lock        lockOptions
	nodeTimeout time.Duration
	guard       time.Duration // negative: not set
	quorum      Quorum
	drift       drift
	prefix      string
	maxWaiters  int // 0: any number
	logger      *slog.Logger
	observer    *Observer
	err         error
}

func (o *lockOptions) fail(format string, args ...any) {
	if o.err == nil {
		o.err = usageError(format, args...)
	}
}

func (o *poolOptions) fail(format string, args ...any) {
	if o.err == nil {
		o.err = usageError(format, args...)
	}
}

// WithTTL sets how long the nodes keep a lock that nobody renews; the watchdog renews it every third of that. Rounded
// up to the millisecond. Default 30 s. It has to leave something after the drift allowance: 4 ms is the smallest with
// the default WithDrift.
func WithTTL(d time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if d <= 0 {
			o.fail("WithTTL(%v): a TTL must be positive; the default is %v", d, defaultTTL)
		}
		o.ttl = d
	})
}

// WithLease gives the lock a fixed life of d instead of renewals: one top-up of nodes that did not grant at first, and
// then it ends, with an error that matches ErrLost alone; Extend prolongs it by d. Default off. The limits are those
// of WithTTL; not together with WithMaxHold.
func WithLease(d time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if d <= 0 {
			o.fail("WithLease(%v): a lease must be positive", d)
		}
		o.lease = d
	})
}

// WithMaxHold makes the watchdog stop d after the acquire began: the lock is lost then, with cause ErrMaxHold. Extend
// never passes it. Default off.
func WithMaxHold(d time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if d <= 0 {
			o.fail("WithMaxHold(%v): a limit must be positive", d)
		}
		o.maxHold = d
	})
}

// WithRetry sets the pause between the rounds of a waiting Lock where nothing tells it when to ask again, because too few
// nodes answer, or tell of releases: exponential from min to max, with full jitter. Default 20 ms and 1 s; min must be
// positive and max not below it.
func WithRetry(min, max time.Duration) LockOption {
	return lockOption(func(o *lockOptions) {
		if min <= 0 || max < min {
			o.fail("WithRetry(%v, %v): the shortest pause must be positive and the longest not below it", min, max)
		}
		o.retryMin, o.retryMax = min, max
	})
}

// WithFair has a waiting Lock or MultiLock get its turn in the order in which calls with WithFair came, over all
// processes. Each stands in a queue on every node, ordered by the nodes' time at which it came, and asks for the lock
// once it is first on as many as an acquire needs. Default off. A call that came while nodes were away, or whose clock
// readings differ by some milliseconds, may be passed by those that came as much later; a process that dies while it is
// first costs the others one TTL at most. Calls without WithFair pass those with it whenever the lock is free, and so
// does TryLock: use it for all callers of a resource, or for none.
func WithFair() LockOption {
	return lockOption(func(o *lockOptions) { o.fair = true })
}

// WithLabel says who holds the lock, for operators. At most 64 printable bytes; they ride along with the random token
// and never replace it. Default host:pid.
func WithLabel(s string) LockOption {
	return lockOption(func(o *lockOptions) {
		if len(s) > maxLabel || !utf8.ValidString(s) || !printable(s) {
			o.fail("WithLabel: a label has at most %d bytes, all printable", maxLabel)
		}
		o.label, o.labelled = s, true
	})
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// WithNodeTimeout sets how long a round waits for a node; it bounds every exchange with a node and the time between
// probes of one that is down. Default 250 ms, or a quarter of the TTL where that is less: per lock it is never more.
// At least 1 ms; a value above a quarter of the pool's TTL is refused.
func WithNodeTimeout(d time.Duration) Option {
	return poolOption(func(o *poolOptions) {
		if d < time.Millisecond {
			o.fail("WithNodeTimeout(%v): a node needs at least 1ms to answer", d)
		}
		o.nodeTimeout = d
	})
}

// WithQuorum sets how many nodes must grant an acquire: Majority (the default), All or AtLeast(k). Below a majority,
// and above the number of nodes, is refused.
func WithQuorum(q Quorum) Option {
	return poolOption(func(o *poolOptions) { o.quorum = q })
}

// WithDrift sets what is taken off every validity: factor, how much two clocks' rates may differ, times the TTL, plus
// floor. Default 0.01 (1 %) and 2 ms; factor from 0 to 0.2, floor not negative. The factor is a claim about how the
// servers' clocks are run: chrony, for one, may slew by 8.3 % by default.
func WithDrift(factor float64, floor time.Duration) Option {
	return poolOption(func(o *poolOptions) {
		if math.IsNaN(factor) || factor < 0 || factor > maxFactor || floor < 0 {
			o.fail("WithDrift(%v, %v): the factor must be from 0 to %v and the floor not negative", factor, floor, maxFactor)
			return
		}
		o.drift = drift{factor, floor}
	})
}

// WithRestartGuard sets for how long a node has no vote after it restarted, lost its data or stepped its clock: until
// every lock that it may have forgotten has run out. Default: the pool's TTL, or lease if that is its default; never
// less than any TTL and lease used. It belongs to the keyspace: a pool with another guard, another number of nodes or
// another quorum than those that are there already gets no votes, and an error that names both.
//
// Freshly started servers have no vote for a guard either, unless all of them have been running for longer. 0 turns
// all of this off: every node that answers votes. That is for tests on fresh servers, and for those who keep a
// restarted server away for a TTL themselves; all clients of a keyspace must do so, for where others have a guard a pool
// without one gets no votes.
func WithRestartGuard(d time.Duration) Option {
	return poolOption(func(o *poolOptions) {
		if d < 0 {
			o.fail("WithRestartGuard(%v): a guard is at least the TTL, or 0 for none", d)
		}
		o.guard = d
	})
}

// WithKeyPrefix sets what stands before a resource's name in its Redis key. Default "lock:"; "" gives the bare names
// that other Redlock libraries use, so that both exclude each other.
func WithKeyPrefix(s string) Option {
	return poolOption(func(o *poolOptions) { o.prefix = s })
}

// WithMaxWaiters sets how many Lock and MultiLock calls of this pool may be under way for one resource: those that wait,
// and the one that asks the nodes. One more fails at once with ErrTooManyWaiters. Default: any number.
func WithMaxWaiters(n int) Option {
	return poolOption(func(o *poolOptions) {
		if n < 1 {
			o.fail("WithMaxWaiters(%d): at least one call must be able to wait; leave the option out for any number", n)
		}
		o.maxWaiters = n
	})
}

// WithLogger writes every event to l as well. Default off.
func WithLogger(l *slog.Logger) Option {
	return poolOption(func(o *poolOptions) { o.logger = l })
}

// WithObserver calls o's functions for every event; see Observer for how. Default off.
func WithObserver(o Observer) Option {
	return poolOption(func(p *poolOptions) { p.observer = &o })
}

// newPoolOptions applies opts over the defaults and checks what does not depend on the nodes.
func newPoolOptions(opts []Option) (*poolOptions, error) {
	o := &poolOptions{drift: drift{defaultFactor, defaultFloor}, prefix: defaultPrefix, guard: -1}
	for _, opt := range opts {
		if opt != nil {
			opt.configurePool(o)
		}
	}
	if o.err == nil {
		o.err = o.lock.err
	}
	if o.err != nil {
		return nil, o.err
	}
	t, _, err := o.terms(nil)
	if err != nil {
		return nil, err
	}
	ttl := t.ttl
	if o.guard < 0 {
		o.guard = ttl
	}
	o.guard = wholeMillis(o.guard)
	if o.nodeTimeout > ttl/timeoutShare {
		return nil, usageError("WithNodeTimeout(%v) is more than a quarter of the TTL of %v: a slow node could use it up; set at most %v",
			o.nodeTimeout, ttl, ttl/timeoutShare)
	}
	if o.nodeTimeout == 0 {
		o.nodeTimeout = min(defaultNodeTimeout, ttl/timeoutShare)
	}
	return o, nil
}

// life is the TTL or lease that this level asks for.
func (o *lockOptions) life() time.Duration {
	switch {
	case o.lease > 0:
		return o.lease
	case o.ttl > 0:
		return o.ttl
	}
	return defaultTTL
}

// retry is the range of a waiter's pauses.
type retry struct{ min, max time.Duration }

// terms are the pool's defaults overridden by one call's options. On the call's level WithTTL overrides a default
// WithLease and the other way round, and WithLease overrides a default WithMaxHold.
func (o *poolOptions) terms(opts []LockOption) (terms, retry, error) {
	l := o.lock
	if len(opts) > 0 {
		var call lockOptions
		for _, opt := range opts {
			if opt != nil {
				opt.configureLock(&call)
			}
		}
		if call.err != nil {
			return terms{}, retry{}, call.err
		}
		if call.lease > 0 && call.maxHold > 0 {
			return terms{}, retry{}, errLeaseAndMaxHold
		}
		l.override(&call)
	}
	if l.lease > 0 && l.maxHold > 0 {
		return terms{}, retry{}, errLeaseAndMaxHold
	}

	t := terms{ttl: l.life(), lease: l.lease > 0, maxHold: l.maxHold, label: l.label, fair: l.fair}
	t.ttl = wholeMillis(t.ttl)
	if o.guard > 0 && t.ttl > o.guard {
		return terms{}, retry{}, usageError("a TTL of %v is more than the restart guard of %v: a node that forgot such a lock would vote again "+
			"while it is held; use WithRestartGuard(%v) or more, the same for all clients of the keyspace", t.ttl, o.guard, t.ttl)
	}
	if t.validity = o.drift.validity(t.ttl); t.validity < time.Millisecond {
		return terms{}, retry{}, usageError("a TTL of %v leaves nothing after the drift allowance of %v; the smallest that works is %v",
			t.ttl, o.drift.allowance(t.ttl), o.drift.smallestTTL())
	}
	t.nodeTimeout = t.ttl / timeoutShare
	if o.nodeTimeout > 0 {
		t.nodeTimeout = min(t.nodeTimeout, o.nodeTimeout)
	}
	if !l.labelled {
		t.label = defaultLabel
	}
	pause := retry{l.retryMin, l.retryMax}
	if pause.max == 0 {
		pause = retry{defaultRetryMin, defaultRetryMax}
	}
	return t, pause, nil
}

var errLeaseAndMaxHold = usageError("WithLease and WithMaxHold exclude each other: a lease is its own limit")

// override takes over what a call has set.
func (o *lockOptions) override(call *lockOptions) {
	if call.ttl > 0 {
		o.ttl, o.lease = call.ttl, 0
	}
	if call.lease > 0 {
		o.lease, o.maxHold = call.lease, 0
	}
	if call.maxHold > 0 {
		o.maxHold = call.maxHold
		if call.lease == 0 {
			o.lease = 0
		}
	}
	if call.retryMax > 0 {
		o.retryMin, o.retryMax = call.retryMin, call.retryMax
	}
	o.fair = o.fair || call.fair
	if call.labelled {
		o.label, o.labelled = call.label, true
	}
}

// defaultLabel is host:pid, as much of it as a label may have.
var defaultLabel = func() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) || !printable(host) {
		host = "unknown"
	}
	pid := ":" + strconv.Itoa(os.Getpid())
	return host[:min(len(host), maxLabel-len(pid))] + pid
}()

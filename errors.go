package redlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The verdicts a caller decides by. Compare with errors.Is: what a call returns usually carries more.
var (
	// ErrHeld says that somebody else holds the resource: the votes of the nodes that said so put the quorum out of
	// reach by themselves.
	ErrHeld = errors.New("redlock: held by another")
	// ErrNoQuorum says that too few nodes answered, so nobody can know who holds the resource.
	ErrNoQuorum = errors.New("redlock: no quorum")
	// ErrLost says that the lock was ours and ownership can no longer be proved: stop the work it protects.
	ErrLost = errors.New("redlock: lock lost")
	// ErrUnlocked says that the lock was given back, by Unlock or by Pool.Close.
	ErrUnlocked = errors.New("redlock: unlocked")
	// ErrMaxHold is the cause of a loss by WithMaxHold.
	ErrMaxHold = errors.New("redlock: held for as long as WithMaxHold allows")
	// ErrTooManyWaiters says that as many calls of this process wait for the resource as WithMaxWaiters allows.
	ErrTooManyWaiters = errors.New("redlock: too many waiters")
	// ErrClosed says that the pool is closed.
	ErrClosed = errors.New("redlock: pool closed")
)

// QuorumError tells why a round did not reach its quorum. It unwraps to its verdict, ErrHeld or ErrNoQuorum; to the
// error of the caller's ctx where that ended the call; and to one *NodeError for each node that did not grant.
type QuorumError struct {
	Op        string       // "acquire", "renew" or "release"
	Resources []string     // sorted, without duplicates
	Need      int          // how many nodes had to grant
	Granted   int          // how many did
	Nodes     []*NodeError // the others, in the pool's order

	verdict error
	ctxErr  error // the caller's ctx error, nil while that ctx was alive
	note    string
	expiry  time.Duration // held: when enough keys in the way will have run out; 0 if unknown
}

// Error names the resources, the count and each node's reason.
func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redlock: %s %s: ", e.Op, nameResources(e.Resources))
	if e.ctxErr != nil {
		fmt.Fprintf(&b, "%v: ", e.ctxErr)
	}
	b.WriteString(strings.TrimPrefix(e.verdict.Error(), "redlock: "))
	fmt.Fprintf(&b, " (granted by %d, needed %d)", e.Granted, e.Need)
	if e.note != "" {
		b.WriteString(": " + e.note)
	}
	for i, n := range e.Nodes {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(strings.TrimPrefix(n.Error(), "redlock: "))
	}
	return b.String()
}

// Unwrap returns the verdict, the ctx's error if there is one, and the nodes' errors.
func (e *QuorumError) Unwrap() []error {
	errs := make([]error, 0, 2+len(e.Nodes))
	errs = append(errs, e.verdict)
	if e.ctxErr != nil {
		errs = append(errs, e.ctxErr)
	}
	for _, n := range e.Nodes {
		errs = append(errs, n)
	}
	return errs
}

// withContext returns a copy of e that also unwraps to the error of a ctx that ended.
func (e *QuorumError) withContext(ctxErr error) *QuorumError {
	c := *e
	c.ctxErr = ctxErr
	return &c
}

// NodeError is one node's reason for not granting. Err is text for the operator: it never matches this package's
// sentinels nor a context error, for a node's own "held" or timeout must not speak for the round.
type NodeError struct {
	Node string // the node's address, without credentials
	Err  error
}

// Error is the node's address and its reason.
func (e *NodeError) Error() string { return "redlock: node " + e.Node + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *NodeError) Unwrap() error { return e.Err }

// reason is the text of why a node did not grant.
type reason string

func (r reason) Error() string { return string(r) }

// The reasons that need no detail.
const (
	reasonPending   = reason("had not answered when the round was decided")
	reasonNeverSent = reason("not asked: the round was over first")
	reasonLate      = reason("the request arrived too late to be applied")
	reasonGone      = reason("did not hold the key; it has it now, which is no vote")
	reasonFull      = reason("its queue is full")
	reasonClosed    = reason("the pool is closed")
	reasonMiscount  = reason("sent a reply that no script of ours sends")
	reasonClock     = reason("its clock differs from ours: no vote until that is settled")
	reasonCounters  = reason("its guard is over: no vote until a majority of the others has told it their fence counters")
	reasonUsedUp    = reason("its fence counters are used up; delete its field of counters while no client runs")
	reasonTooFar    = reason("answered a fence that is years ahead of the nodes' clocks; its vote does not count")
	reasonMore      = reason("answered a higher fence than the lock's; it does not carry that")
)

func reasonTimeout(d time.Duration) reason {
	return reason("no answer within " + d.String())
}

// reasonForgot is what a node that is not steady is given as long as nobody has looked at it more closely.
func reasonForgot(guard time.Duration) reason {
	return reason("it restarted, lost its data or stepped its clock: no vote for at most another " + guard.String())
}

// reasonDenied says who is in the way: which resource, and for how long at most. A negative remaining time means a
// key without expiry.
func reasonDenied(resource string, remaining time.Duration) reason {
	if remaining < 0 {
		return reason("held by another, without expiry: " + quoteResource(resource))
	}
	return reason("held by another for at most another " + remaining.String() + ": " + quoteResource(resource))
}

// reasonOf makes any error safe to show as a node's reason. What a server said keeps its type; everything else becomes
// text, so that a timeout of the connection never looks like one of the caller's.
func reasonOf(err error) error {
	if err == nil {
		return reasonMiscount
	}
	var server redis.Error
	if errors.As(err, &server) && !errors.Is(err, redis.Nil) {
		return server
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return reason("no answer in time")
	}
	return reason(err.Error())
}

// withoutSecrets makes a connection's error safe to show: a server that does not know AUTH or HELLO quotes their
// arguments.
func withoutSecrets(err error, secrets ...string) error {
	text := err.Error()
	if i := strings.Index(text, ", with args beginning with"); i >= 0 {
		text = text[:i]
	}
	clean := text
	for _, s := range secrets {
		if s != "" {
			clean = strings.ReplaceAll(clean, s, "***")
		}
	}
	if clean == err.Error() {
		return err
	}
	return reason(clean)
}

// lossError is why a lock was lost. It matches ErrLost, and the cause where there is one.
type lossError struct {
	resources []string
	cause     error // ErrMaxHold, a *QuorumError, or nil for the end of a fixed lease
}

func (e *lossError) Error() string {
	s := "redlock: lock on " + nameResources(e.resources) + " lost"
	if e.cause == nil {
		return s + ": its fixed lease is over"
	}
	return s + ": " + strings.TrimPrefix(e.cause.Error(), "redlock: ")
}

func (e *lossError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrLost}
	}
	return []error{ErrLost, e.cause}
}

// usageError is a mistake in a call's arguments; its text says what to do.
func usageError(format string, args ...any) error {
	return fmt.Errorf("redlock: "+format, args...)
}

var errNilContext = usageError("the ctx is nil; pass context.Background() if nothing should end the call")

// Names are cut in messages, so that a name of 64 KiB does not flood a log.
const (
	maxNameInMessage  = 80
	maxNamesInMessage = 4
)

func quoteResource(s string) string {
	if len(s) > maxNameInMessage {
		return strconv.Quote(s[:maxNameInMessage]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}

func nameResources(rs []string) string {
	var b strings.Builder
	for i, r := range rs {
		if i == maxNamesInMessage {
			fmt.Fprintf(&b, " and %d more", len(rs)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteResource(r))
	}
	return b.String()
}

// tooManyWaiters refuses a call whose resource has a full line.
func tooManyWaiters(most int, resource string) error {
	return fmt.Errorf("%w for %s: WithMaxWaiters allows %d in a process", ErrTooManyWaiters, quoteResource(resource), most)
}

package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// Limits on what can be locked.
const (
	maxResource  = 64 << 10 // bytes of one name
	maxResources = 1024     // names in one MultiLock
)

// Pool locks resources by the votes of N independent Redis nodes. Its methods are safe for concurrent use. Make one
// for each keyspace and process, with New or Open, and Close it at the end.
type Pool struct {
	opts   *poolOptions // set by New, then read-only, like the fields below
	quorum *quorum
	dog    *watchdog
	lines  *lines
	deafen context.CancelFunc // ends the listeners
	owned  []*redis.Client    // closed by Close: those that Open made
	run    errgroup.Group     // one goroutine per node, the watchdog's, and those of the lines

	mu     sync.Mutex // guards closed, and that no call begins after it is set
	closed bool
	calls  sync.WaitGroup // acquiring calls under way
	ended  chan struct{}  // closed when Close is done
}

// New makes a pool of clients that the caller goes on owning; any settings will do. The pool makes one connection of
// its own to each server, from a copy of the client's options: hooks, limiter and retries are not used for locking.
// Nothing is sent yet: what is wrong with a node fails each acquire with an error that names it.
func New(clients []*redis.Client, opts ...Option) (*Pool, error) {
	o, err := newPoolOptions(opts)
	if err != nil {
		return nil, err
	}
	return newPool(clients, o)
}

// Open makes a pool from URLs, redis://, rediss:// (TLS) or unix://, one for each node, and owns its clients. A
// password goes into the URL, percent-encoded; it is never shown. Nothing is sent yet.
func Open(urls []string, opts ...Option) (*Pool, error) {
	o, err := newPoolOptions(opts)
	if err != nil {
		return nil, err
	}
	var clients []*redis.Client
	closeAll := func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for i, u := range urls {
		settings, err := parseURL(u)
		if err != nil {
			closeAll()
			return nil, usageError("node %d of %d: %w", i+1, len(urls), err)
		}
		settings.DialTimeout = o.nodeTimeout // the default dialer keeps it
		clients = append(clients, redis.NewClient(nodeOptions(settings, o.nodeTimeout)))
	}
	p, err := newPool(clients, o)
	if err != nil {
		closeAll()
		return nil, err
	}
	p.owned = clients
	return p, nil
}

func newPool(clients []*redis.Client, o *poolOptions) (*Pool, error) {
	nodes, err := nodeSettings(clients)
	if err != nil {
		return nil, err
	}
	need, err := o.quorum.of(len(nodes))
	if err != nil {
		return nil, err
	}
	return start(nodes, o, need, newClock()), nil
}

var errNoNodes = usageError("no nodes: give at least one, better five, independent Redis servers")

// nodeSettings refuses what cannot be N independent nodes.
func nodeSettings(clients []*redis.Client) ([]*redis.Options, error) {
	if len(clients) == 0 {
		return nil, errNoNodes
	}
	var all []*redis.Options
	for i, c := range clients {
		if c == nil {
			return nil, usageError("client %d of %d is nil", i+1, len(clients))
		}
		o := c.Options()
		for j, other := range all {
			if clients[j] == c {
				return nil, usageError("clients %d and %d are the same: one server must not vote twice", j+1, i+1)
			}
			if other.Network == o.Network && other.Addr == o.Addr {
				return nil, usageError("clients %d and %d have the same address %s: one server must not vote twice, not even with two databases",
					j+1, i+1, o.Addr)
			}
		}
		all = append(all, o)
	}
	return all, nil
}

// start builds a pool and its goroutines; Close ends them and waits.
func start(nodes []*redis.Options, o *poolOptions, need int, c clock) *Pool {
	q := &quorum{need: need, majority: majorityOf(len(nodes)), clock: c, closed: make(chan struct{}),
		events: newEvents(o.observer, o.logger)}
	var names []string
	for _, settings := range nodes {
		names = append(names, settings.Addr)
	}
	q.keeper = newKeeper(names, need, keeperOptions{majority: q.majority, guard: o.guard, timeout: o.nodeTimeout, drift: o.drift, clock: c, events: q.events})
	for i, settings := range nodes {
		q.nodes = append(q.nodes, newNode(i, settings, o.nodeTimeout, c, q.events, q.keeper, o.prefix))
	}
	q.keeper.wake = q.nudge
	q.fences.majority = q.majority
	for _, n := range q.nodes {
		q.fences.zeros = append(q.fences.zeros, &n.zero)
	}
	p := &Pool{opts: o, quorum: q, dog: newWatchdog(q), ended: make(chan struct{})}
	q.keeper.jumped = p.dog.recheck
	var hearing context.Context
	hearing, p.deafen = context.WithCancel(context.Background())
	p.lines = newLines(q, o.maxWaiters, func(f func()) { p.run.Go(func() error { f(); return nil }) }, hearing)
	for _, n := range q.nodes {
		p.run.Go(func() error { n.run(); return nil })
	}
	p.run.Go(func() error { p.dog.run(); return nil })
	if q.events != nil {
		go q.events.run() // events.close ends it
	}
	if len(nodes)%2 == 0 || len(nodes) == 1 {
		q.events.emit(evWarning, Event{Nodes: len(nodes), Need: need, Err: adviceOnNumber(len(nodes), need)})
	}
	return p
}

func adviceOnNumber(n, need int) error {
	if n == 1 {
		return usageError("a pool of one node has no majority to fall back on: it is lost with that node; use 3 or 5")
	}
	return usageError("%d nodes need %d grants, so one node fewer would survive as many failures; use an odd number", n, need)
}

// Lock waits for the resource until it has it or ctx ends; it is woken when the resource is released. Calls of one pool
// get their turn in the order in which they came, those of different processes by chance, or with WithFair in their order
// too. On failure it returns a *QuorumError, which matches ErrHeld or ErrNoQuorum and ctx's error; or ErrTooManyWaiters,
// ErrClosed; or an error about its arguments.
func (p *Pool) Lock(ctx context.Context, resource string, opts ...LockOption) (*Lock, error) {
	return p.acquire(ctx, []string{resource}, true, opts)
}

// TryLock asks the nodes once. It blocks for a node timeout at most; its errors are those of Lock.
func (p *Pool) TryLock(ctx context.Context, resource string, opts ...LockOption) (*Lock, error) {
	return p.acquire(ctx, []string{resource}, false, opts)
}

// MultiLock waits for all of the resources, up to 1 024, and takes them together: one round trip per node, one handle,
// all or nothing. Order and duplicates do not matter, and callers with overlapping sets cannot deadlock. Losing one of
// them on a majority of nodes loses the lock.
func (p *Pool) MultiLock(ctx context.Context, resources []string, opts ...LockOption) (*Lock, error) {
	return p.acquire(ctx, resources, true, opts)
}

// TryMultiLock asks the nodes once for all of the resources. Its error names one that was held.
func (p *Pool) TryMultiLock(ctx context.Context, resources []string, opts ...LockOption) (*Lock, error) {
	return p.acquire(ctx, resources, false, opts)
}

// Do waits for the resource and runs fn under its lock. fn's ctx ends when the caller's does or when the lock is lost.
// The lock is given back afterwards, also when fn panics. The error joins fn's, the loss and Unlock's.
func (p *Pool) Do(ctx context.Context, resource string, fn func(ctx context.Context) error, opts ...LockOption) (err error) {
	l, err := p.Lock(ctx, resource, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if e := l.Unlock(ctx); e != nil && !(errors.Is(e, ErrLost) && errors.Is(err, ErrLost)) {
			err = errors.Join(err, e)
		}
	}()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	held := l.Context()
	defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
	return l.joinLoss(fn(inner))
}

// acquire checks the arguments and runs one round, or rounds until it has the lock.
func (p *Pool) acquire(ctx context.Context, resources []string, wait bool, opts []LockOption) (*Lock, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	t, pause, err := p.opts.terms(opts)
	if err != nil {
		return nil, err
	}
	if resources, err = checkResources(resources); err != nil {
		return nil, err
	}
	if !p.enter() {
		return nil, ErrClosed
	}
	defer p.calls.Done()
	if ctx.Err() != nil {
		return nil, &QuorumError{Op: opAcquire.String(), Resources: resources, Need: p.quorum.need,
			verdict: ErrNoQuorum, ctxErr: ctx.Err(), note: "the ctx had ended before any node was asked"}
	}
	keys := make([]string, len(resources))
	for i, r := range resources {
		keys[i] = p.opts.prefix + r
	}

	began := p.quorum.clock.mono()
	attempts := 1
	denied := func(err error) { p.denied(err, resources, t.label, attempts, began) }
	wanted := wish{terms: t, resources: resources, keys: keys}
	if !wait {
		h, err := p.quorum.acquire(ctx, &wanted)
		if err != nil {
			denied(err)
			return nil, err
		}
		return p.hand(ctx, h, attempts, began), nil
	}
	w := &waiter{wish: wanted, retry: pause, denied: func(err error) { denied(err); attempts++ }}
	if t.fair {
		w.ticket = p.quorum.draw(&wanted, p.opts.prefix)
	}
	p.quorum.counts.waiting.Add(1)
	h, err := p.lines.wait(ctx, w)
	p.quorum.counts.waiting.Add(-1)
	if err != nil {
		return nil, err
	}
	return p.hand(ctx, h, attempts, began), nil
}

// hand makes the handle and has the watchdog look after it.
func (p *Pool) hand(ctx context.Context, h *hold, attempts int, began time.Duration) *Lock {
	q := p.quorum
	l := newLock(ctx, q, p.dog, h)
	q.counts.acquired.Add(1)
	if q.events.wants(evAcquired) {
		h.mu.Lock()
		ev := q.describe(h)
		h.mu.Unlock()
		ev.Attempt, ev.Wait = attempts, q.clock.mono()-began
		q.events.emit(evAcquired, ev)
	}
	q.review(h) // the votes may all have come before there was a lock to speak of
	return l
}

func (p *Pool) denied(err error, resources []string, label string, attempt int, began time.Duration) {
	q := p.quorum
	var failed *QuorumError
	if !errors.As(err, &failed) {
		return
	}
	if errors.Is(err, ErrHeld) {
		q.counts.denied.Add(1)
	} else {
		q.counts.noQuorum.Add(1)
	}
	q.events.emit(evDenied, Event{Resources: resources, Label: label, Attempt: attempt,
		Wait: q.clock.mono() - began, Granted: failed.Granted, Need: failed.Need, Nodes: len(q.nodes), Err: err})
}

// checkResources returns a sorted copy without duplicates.
func checkResources(resources []string) ([]string, error) {
	if len(resources) == 0 {
		return nil, usageError("no resources: name at least one")
	}
	if len(resources) > maxResources {
		return nil, usageError("%d resources: at most %d can be locked together", len(resources), maxResources)
	}
	for _, r := range resources {
		switch {
		case r == "":
			return nil, usageError("a resource's name is empty")
		case len(r) > maxResource:
			return nil, usageError("resource %s: at most %d bytes; use a hash of the name", quoteResource(r), maxResource)
		case strings.HasPrefix(r, reservedNames):
			return nil, usageError("resource %s: names that begin with %q are this library's own", quoteResource(r), reservedNames)
		}
	}
	sorted := slices.Clone(resources)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

// Stats never blocks on a node.
func (p *Pool) Stats() Stats {
	c := &p.quorum.counts
	s := Stats{
		Acquired: c.acquired.Load(), Denied: c.denied.Load(), NoQuorum: c.noQuorum.Load(),
		Renewed: c.renewed.Load(), RenewalsFailed: c.renewalsFailed.Load(), Refilled: c.refilled.Load(), FencesRaised: c.raised.Load(),
		Lost: c.lost.Load(), Released: c.released.Load(), EventsDropped: p.quorum.events.droppedCount(),
		Held: p.dog.count(), Waiting: int(c.waiting.Load()), MaxLateness: time.Duration(c.maxLateness.Load()),
	}
	for i, n := range p.quorum.nodes {
		s.Nodes = append(s.Nodes, n.stats())
		s.Nodes[i].Subscribed = p.lines.listeners[i].subscribed()
	}
	return s
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// fleet are the nodes that scenarios play on, and what can be done to them. Nodes count from 0 here and from 1 for
// people.
type fleet interface {
	count() int
	addr(i int) string
	options(i int) *redis.Options // to reach it; the caller may change them
	cannot(p power) string        // why that cannot be done to these nodes; "" if it can
	stop(ctx context.Context, i int) error
	start(ctx context.Context, i int) error
	forget(ctx context.Context, i int, keys ...string) error // at least those keys are gone
	has(ctx context.Context, i int, key string) (bool, error)
	stepClock(i int, d time.Duration)
	close()
}

// power is something that a scenario does to nodes. What is done to connections needs none: each client has proxies.
type power int

const (
	canStop   power = iota
	canOutage       // stop a majority
	canClock
)

// embedded are nodes inside this process.
type embedded struct{ nodes *redlocktest.Nodes }

func startEmbedded() (fleet, error) {
	nodes, err := redlocktest.New(drillNodes)
	if err != nil {
		return nil, exitf(exitUndone, "cannot start nodes: %v", err)
	}
	return &embedded{nodes}, nil
}

func (e *embedded) count() int          { return e.nodes.Len() }
func (e *embedded) addr(i int) string   { return e.nodes.Node(i).Addr() }
func (e *embedded) cannot(power) string { return "" }
func (e *embedded) close()              { _ = e.nodes.Close() }

func (e *embedded) options(i int) *redis.Options { return &redis.Options{Addr: e.addr(i)} }

func (e *embedded) stop(_ context.Context, i int) error {
	e.nodes.Node(i).Stop()
	return nil
}

func (e *embedded) start(_ context.Context, i int) error { return e.nodes.Node(i).Restart() }

func (e *embedded) forget(_ context.Context, i int, _ ...string) error {
	e.nodes.Node(i).FlushAll()
	return nil
}

func (e *embedded) has(_ context.Context, i int, key string) (bool, error) {
	_, has := e.nodes.Node(i).Get(key)
	return has, nil
}

func (e *embedded) stepClock(i int, d time.Duration) { e.nodes.Node(i).StepClock(d) }

// own are nodes of the user's. They are stopped and started by commands of the user's, if at all; their data outside
// the drill's own keys is never touched.
type own struct {
	urls     []string
	clients  []*redis.Client
	commands commands
	outage   bool // a majority may be stopped
}

// reachOwn makes clients of the nodes. It sends nothing yet.
func reachOwn(urls []string, c commands, outage bool) (*own, error) {
	// The library's reading of the URLs has the better errors, and never quotes one.
	pool, err := redlock.Open(urls)
	if err != nil {
		return nil, exitf(exitUsage, "%s", reasonText(err))
	}
	_ = pool.Close()
	o := &own{urls: urls, commands: c, outage: outage}
	for i := range urls {
		settings := o.options(i)
		settings.DialTimeout, settings.ReadTimeout, settings.WriteTimeout = time.Second, time.Second, time.Second
		settings.MaxRetries, settings.DialerRetries, settings.DisableIdentity, settings.Protocol = -1, 1, true, 2
		o.clients = append(o.clients, redis.NewClient(settings))
	}
	return o, c.check(o)
}

func (o *own) count() int        { return len(o.urls) }
func (o *own) addr(i int) string { return o.options(i).Addr }

func (o *own) options(i int) *redis.Options {
	settings, err := redis.ParseURL(o.urls[i])
	if err != nil {
		panic("a URL that the library takes and go-redis does not") // both read it with the same function
	}
	return settings
}

func (o *own) cannot(p power) string {
	switch {
	case p == canClock:
		return "the clock of your nodes is not the drill's to set; run it without --nodes"
	case o.commands.stop == "":
		return "your nodes are not the drill's to stop; give it --stop-cmd and --start-cmd"
	case p == canOutage && !o.outage:
		return "it stops a majority, which ends every lock that anybody holds on your nodes; --allow-outage permits that"
	}
	return ""
}

func (o *own) close() {
	for _, c := range o.clients {
		_ = c.Close()
	}
}

// settles is how long a node may take to be away, or back, once its command has returned.
const settles = 15 * time.Second

func (o *own) stop(ctx context.Context, i int) error {
	if err := o.commands.run(ctx, "--stop-cmd", o.commands.stop, o, i); err != nil {
		return err
	}
	err := o.wait(ctx, func() bool { return o.answers(ctx, i) != nil })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("--stop-cmd succeeded, and node %d still answers at %s: it stopped something else, or a supervisor "+
			"has started the node again", i+1, o.addr(i))
	}
	return nil
}

func (o *own) start(ctx context.Context, i int) error {
	if err := o.commands.run(ctx, "--start-cmd", o.commands.start, o, i); err != nil {
		return err
	}
	var last error
	err := o.wait(ctx, func() bool { last = o.answers(ctx, i); return last == nil })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("--start-cmd succeeded, and node %d does not answer at %s: %v", i+1, o.addr(i), last)
	}
	return nil
}

// answers asks the node for its time, which the library's users may do.
func (o *own) answers(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := o.clients[i].Time(ctx).Err()
	var said redis.Error
	if errors.As(err, &said) && strings.HasPrefix(err.Error(), "NOPERM") {
		return nil
	}
	return err
}

func (o *own) wait(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, settles)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (o *own) forget(ctx context.Context, i int, keys ...string) error {
	return o.clients[i].Del(ctx, keys...).Err()
}

func (o *own) has(ctx context.Context, i int, key string) (bool, error) {
	err := o.clients[i].Get(ctx, key).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

func (o *own) stepClock(int, time.Duration) {}

// place is where a node is, for the placeholders of commands.
func (o *own) place(i int) (host, port string) {
	host, port, err := net.SplitHostPort(o.addr(i))
	if err != nil {
		return "", "" // a unix socket
	}
	return host, port
}

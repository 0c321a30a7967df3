package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/spf13/cobra"
)

const (
	drillNodes  = 5
	drillTTL    = 3 * time.Second
	minDrillTTL = 500 * time.Millisecond
	maxDrillTTL = time.Minute

	// What the library takes off a TTL by default: within it after the deadline, nobody else can have the lock yet.
	driftFactor = 0.01
	driftFloor  = 2 * time.Millisecond
)

func newDrill(stdout io.Writer) *cobra.Command {
	var from sources
	ttl := drillTTL
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Watch a lock while nodes go away and come back",
		Long: `Drill starts five small Redis nodes inside this process, takes a lock on them, takes nodes
away one by one and brings them back, and prints what the lock says to it. At the end it says
which of the lock's promises were kept: exit code 0 if all, 1 if not.

With --nodes or --nodes-file it uses those nodes. It cannot stop them, so it runs only the
steps that need no fault, on one key of its own, and says what it leaves out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl < minDrillTTL || ttl > maxDrillTTL {
				return exitf(exitUsage, "--ttl %v: from %v to %v", ttl, minDrillTTL, maxDrillTTL)
			}
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return runDrill(ctx, stdout, from, ttl)
		},
	}
	from.register(cmd.Flags())
	cmd.Flags().DurationVar(&ttl, "ttl", drillTTL, "the lock's lease; the drill takes some five times that")
	return cmd
}

// drill is one run of it. One goroutine does and prints everything; the observer only hands events over.
type drill struct {
	ctx      context.Context
	line     *timeline
	ttl      time.Duration
	nodes    *redlocktest.Nodes // nil for nodes that it did not start
	events   chan redlock.Event // of the holder
	holder   *redlock.Pool
	rival    *redlock.Pool
	lock     *redlock.Lock
	resource string
	names    *strings.Replacer // addresses to "node 1"
	count    int               // nodes
	failures int               // renewals that failed in a row
	degraded bool              // the lock said so
	results  []result
}

// drillPrefix is a keyspace of its own: the drill's short guard must not become that of the locks that are in use.
const drillPrefix = "lock:drill:"

// result is a promise and whether it was kept.
type result struct {
	name, text string
	kept       bool
}

// runDrill returns an error with the exit code, unless all promises were kept.
func runDrill(ctx context.Context, w io.Writer, from sources, ttl time.Duration) error {
	d := &drill{ctx: ctx, line: newTimeline(w), ttl: ttl, events: make(chan redlock.Event, 1024),
		resource: "drill-" + rand.Text()[:8]}
	urls, err := d.place(from)
	if err != nil {
		return err
	}
	if d.nodes != nil {
		defer d.nodes.Close()
	}
	if err := d.open(urls); err != nil {
		return exitf(exitUsage, "%s", reasonText(err))
	}
	defer d.rival.Close()
	defer d.holder.Close()
	d.introduce()
	d.play()
	if ctx.Err() != nil {
		return exitf(exitSignal+int(syscall.SIGINT), "the drill was interrupted")
	}
	return d.summary()
}

// place finds or starts the nodes.
func (d *drill) place(from sources) (urls []string, err error) {
	if from.given() {
		return from.urls()
	}
	if d.nodes, err = redlocktest.New(drillNodes); err != nil {
		return nil, exitf(exitFailed, "cannot start nodes: %v", err)
	}
	return d.nodes.URLs(), nil
}

// open makes two clients that know nothing of each other.
func (d *drill) open(urls []string) (err error) {
	send := func(ev redlock.Event) { d.events <- ev }
	if d.holder, err = redlock.Open(urls, redlock.WithTTL(d.ttl), redlock.WithKeyPrefix(drillPrefix), redlock.WithLabel("client A"),
		redlock.WithObserver(redlock.Observer{Renewed: send, RenewalFailed: send, Degraded: send, Restored: send,
			Lost: send, NodeLost: send, NodeBack: send, NodeUnsteady: send, NodeSteady: send, Warning: send})); err != nil {
		return err
	}
	if d.rival, err = redlock.Open(urls, redlock.WithTTL(d.ttl), redlock.WithKeyPrefix(drillPrefix), redlock.WithLabel("client B")); err != nil {
		_ = d.holder.Close()
	}
	return err
}

// introduce says what there is.
func (d *drill) introduce() {
	nodes := d.holder.Stats().Nodes
	d.count, d.names = len(nodes), shortNames(nodes)
	d.line.text(bold, "redlock drill: one lock on %d nodes, TTL %v; %d of them decide", d.count, d.ttl, d.count/2+1)
	for i, n := range nodes {
		d.line.text(dim, "  node %d = %s", i+1, n.Node)
	}
	if d.nodes == nil {
		d.line.text(plain, "These nodes are not the drill's to stop. Left out: one and two nodes away, their return, the loss")
		d.line.text(plain, "with three away, and the recovery. Without --nodes the drill starts nodes of its own and shows them.")
	}
	fmt.Fprintln(d.line.w)
	d.line.head("seconds", "what", "what the lock says")
}

// shortNames turns addresses into "node 1" and so on.
func shortNames(nodes []redlock.NodeStats) *strings.Replacer {
	type pair struct{ address, name string }
	var pairs []pair
	for i, n := range nodes {
		pairs = append(pairs, pair{n.Node, fmt.Sprintf("node %d", i+1)})
	}
	// The longest first: an address may be the beginning of another.
	slices.SortFunc(pairs, func(a, b pair) int { return len(b.address) - len(a.address) })
	var all []string
	for _, p := range pairs {
		all = append(all, "node "+p.address, p.name, p.address, p.name)
	}
	return strings.NewReplacer(all...)
}

// promise notes whether one was kept, and reports it.
func (d *drill) promise(name, text string, kept bool) bool {
	d.results = append(d.results, result{name, text, kept})
	return kept
}

// await prints events as they come until one satisfies want, and returns that. It gives up after a while.
func (d *drill) await(within time.Duration, want func(redlock.Event) bool) (redlock.Event, bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case ev := <-d.events:
			d.show(ev)
			if want(ev) {
				return ev, true
			}
		case <-timer.C:
			return redlock.Event{}, false
		case <-d.ctx.Done():
			return redlock.Event{}, false
		}
	}
}

// named wants an event of that name.
func named(name string) func(redlock.Event) bool {
	return func(ev redlock.Event) bool { return ev.Name == name }
}

// show prints one event.
func (d *drill) show(ev redlock.Event) {
	say := func(style, what, format string, args ...any) { d.line.said(ev.Time, style, what, format, args...) }
	on := fmt.Sprintf("on %d of %d nodes, margin %d", ev.Granted, ev.Nodes, ev.Margin)
	switch ev.Name {
	case "renewed":
		d.failures = 0
		say(plain, "renewed", "%s, valid for %s", on, ms(ev.Validity))
	case "renewal_failed":
		d.failures++
		if d.failures > 1 {
			say(red, "renewal failed", "again; valid for %s yet", ms(ev.Validity))
			return
		}
		say(red, "renewal failed", "valid for %s yet; %s", ms(ev.Validity), d.reasons(ev.Err))
	case "degraded":
		say(red, "degraded", "%s: %s", on, forgettable(ev.Margin))
	case "restored":
		say(green, "restored", "%s: %s", on, forgettable(ev.Margin))
	case "lost":
		say(red, "LOST", "held for %s; the work that it protects must stop", ms(ev.Hold))
	case "node_lost":
		say(red, d.names.Replace(ev.Node)+" lost", "%s", d.names.Replace(reasonText(ev.Err)))
	case "node_back":
		say(green, d.names.Replace(ev.Node)+" back", "it answers again")
	case "node_unsteady":
		say(red, d.names.Replace(ev.Node)+" unsteady", "%s", d.names.Replace(reasonText(ev.Err)))
	case "node_steady":
		say(green, d.names.Replace(ev.Node)+" steady", "it has its vote again")
	case "warning":
		say(red, "warning", "%s", reasonText(ev.Err))
	}
}

// forgettable is what a margin means.
func forgettable(margin int) string {
	switch margin {
	case 0:
		return "no node may forget it now"
	case 1:
		return "one node may forget it unseen"
	}
	return fmt.Sprintf("%d nodes may forget it unseen", margin)
}

// reasons lists a round's failure node by node.
func (d *drill) reasons(err error) string {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return d.names.Replace(reasonText(err))
	}
	verdict := "no quorum"
	if errors.Is(err, redlock.ErrHeld) {
		verdict = "held by another"
	}
	text := fmt.Sprintf("%s, granted by %d, needed %d:", verdict, q.Granted, q.Need)
	for _, n := range q.Nodes {
		text += "\n  " + d.names.Replace(reasonText(n))
	}
	return text
}

// ms is a duration in whole milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

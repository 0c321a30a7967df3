package main

import (
	"context"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/spf13/cobra"
)

const (
	drillNodes  = 5
	drillTTL    = 3 * time.Second
	minDrillTTL = 500 * time.Millisecond
	maxDrillTTL = time.Minute

	// drillPrefix is a keyspace of its own: the drill's short guard must not become that of the locks that are in use.
	drillPrefix = "lock:drill:"

	// What the library takes off a TTL by default: within it after the deadline, nobody else can have the lock yet.
	driftFactor = 0.01
	driftFloor  = 2 * time.Millisecond
)

// prefixFor is a keyspace for each TTL, for the guard is part of what all clients of a keyspace agree on.
func prefixFor(ttl time.Duration) string { return drillPrefix + ttl.String() + ":" }

// spareOf is how long after a deadline nobody else can have the lock yet.
func spareOf(ttl time.Duration) time.Duration {
	return time.Duration(float64(ttl)*driftFactor) + driftFloor
}

// drillOptions are what the drill was asked for.
type drillOptions struct {
	from     sources
	names    []string // of scenarios; none is the tour
	list     bool
	ttl      time.Duration
	commands commands
	outage   bool
	settle   time.Duration
	timeout  time.Duration // of a node; 0 is the library's default
	report   string        // files to write, if not empty
	json     string
	history  string

	settleGiven bool
	opts        []redlock.Option // for tests, which break the lock with them
}

func newDrill(stdout io.Writer) *cobra.Command {
	o := drillOptions{}
	cmd := &cobra.Command{
		Use:   "drill [NAME...]",
		Short: "Watch a lock while nodes go away and come back",
		Long: `Drill starts five small Redis nodes inside this process, takes a lock on them, takes nodes
away one by one and brings them back, and prints what the lock says to it. At the end it says
which of the lock's promises were kept: exit code 0 if all, 1 if not.

With names it plays those scenarios, "all" plays all, "list" names them.

With --nodes or --nodes-file it uses those nodes, under keys of its own. It breaks its own
connections to them; it stops and starts them only by the commands that --stop-cmd and
--start-cmd give, for example

  redlock drill one-node rolling --nodes-file nodes.txt \
    --stop-cmd 'ssh {host} sudo systemctl stop redis' --start-cmd 'ssh {host} sudo systemctl start redis'

and it always starts what it has stopped. What it cannot do to them it leaves out, and says so.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.names = args
			o.settleGiven = cmd.Flags().Changed("settle")
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return o.run(ctx, stdout)
		},
	}
	f := cmd.Flags()
	o.from.register(f)
	f.DurationVar(&o.ttl, "ttl", drillTTL, "the lock's lease; a scenario takes some five times that")
	f.DurationVar(&o.timeout, "node-timeout", 0, "WithNodeTimeout of the lock, up to a quarter of the TTL (default 250ms, or a quarter of the TTL where that is less)")
	f.BoolVar(&o.list, "list", false, "name the scenarios")
	f.StringVar(&o.commands.stop, "stop-cmd", "", "stops one of your nodes: a `COMMAND` for sh with {node} (its number), {host}, {port} or {addr} in it")
	f.StringVar(&o.commands.start, "start-cmd", "", "the `COMMAND` that starts it again")
	f.DurationVar(&o.commands.timeout, "cmd-timeout", time.Minute, "how long each of these commands may take")
	f.BoolVar(&o.outage, "allow-outage", false, "permit scenarios that stop a majority of your nodes, which ends all locks on them")
	f.DurationVar(&o.settle, "settle", 30*time.Second, "how long a node of yours that was started again is left alone before the next one is stopped: "+
		"at least the guard of the locks that are in use")
	f.StringVar(&o.report, "report", "", "write a page with a picture of what happened to `FILE`")
	f.StringVar(&o.history, "history", "", "write everything that happened to `FILE`, one JSON object a line")
	f.StringVar(&o.json, "json", "", "write the promises and numbers to `FILE`")
	return cmd
}

// run plays what was asked for. The error has the exit code, unless all promises were kept.
func (o *drillOptions) run(ctx context.Context, w io.Writer) error {
	if o.list || len(o.names) == 1 && o.names[0] == "list" {
		return listScenarios(w)
	}
	if o.ttl < minDrillTTL || o.ttl > maxDrillTTL {
		return exitf(exitUsage, "--ttl %v: from %v to %v", o.ttl, minDrillTTL, maxDrillTTL)
	}
	if o.settle < 0 || o.commands.timeout <= 0 {
		return exitf(exitUsage, "--settle and --cmd-timeout must not be negative")
	}
	if o.timeout != 0 && (o.timeout < time.Millisecond || o.timeout > o.ttl/4) {
		return exitf(exitUsage, "--node-timeout %v: from 1ms to a quarter of --ttl, %v", o.timeout, o.ttl/4)
	}
	urls, err := o.from.urls()
	if err != nil {
		return err
	}
	if o.from.given() && len(urls) == 0 {
		return exitf(exitUsage, "the list of nodes is empty")
	}
	if len(urls) == 0 && o.commands.stop+o.commands.start != "" {
		return exitf(exitUsage, "--stop-cmd and --start-cmd are for nodes of yours: name them with --nodes or --nodes-file")
	}
	redis.SetLogger(silence{}) // our own clients of the nodes complain of what the drill does to them
	if len(o.names) == 0 {
		if o.timeout != 0 {
			return exitf(exitUsage, "--node-timeout is for named scenarios")
		}
		if o.commands.stop+o.commands.start != "" {
			return exitf(exitUsage, "--stop-cmd and --start-cmd are for named scenarios: %s, or all", strings.Join(scenarioNames(), ", "))
		}
		return o.runTour(ctx, w, urls)
	}
	return o.runScenarios(ctx, w, urls)
}

// silence is a log that nobody reads.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Command soak lets several client processes contend for a few resources on five real Redis servers, while a nemesis
// breaks servers, networks and the clients themselves, and checks afterwards, from what every process wrote down, that
// the library kept its promises. docs/soak.md says how to run it and what it checks.
//
//	go run ./soak -duration 2m -seed 1 -provider processes -lock redlock -out DIR
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// options are what the command line sets.
type options struct {
	duration  time.Duration
	seed      uint64
	provider  string
	lock      string
	out       string
	faults    string // "all", "none", or names
	pace      time.Duration
	clients   int
	workers   int
	resources int
	ttl       time.Duration
	holds     int64
	clocks    bool // of their own for servers, where that can be had

	nodeTimeout time.Duration
}

func main() {
	if config := os.Getenv(clientEnv); config != "" {
		if err := client(config); err != nil {
			fmt.Fprintln(os.Stderr, "soak client:", err)
			os.Exit(1)
		}
		return
	}
	o := defaults()
	flag.DurationVar(&o.duration, "duration", o.duration, "for how long things are broken")
	flag.Uint64Var(&o.seed, "seed", o.seed, "decides what is broken when; 0: by the clock")
	flag.StringVar(&o.provider, "provider", o.provider, "processes or containers")
	flag.StringVar(&o.lock, "lock", o.lock, "redlock or redsync")
	flag.StringVar(&o.out, "out", o.out, "directory for histories and summary; default soak-SEED in the working directory")
	flag.StringVar(&o.faults, "faults", o.faults, "all, none, or names of faults with commas between")
	flag.DurationVar(&o.pace, "pace", o.pace, "between two faults on average; they come slower where the promise asks for it")
	flag.IntVar(&o.clients, "clients", o.clients, "client processes")
	flag.IntVar(&o.workers, "workers", o.workers, "goroutines in each that lock")
	flag.IntVar(&o.resources, "resources", o.resources, "resources that they contend for")
	flag.DurationVar(&o.ttl, "ttl", o.ttl, "TTL of the locks; the restart guard is as long")
	flag.DurationVar(&o.nodeTimeout, "node-timeout", o.nodeTimeout, "of the clients; default a sixth of the TTL, as 250 ms of 1.5 s")
	flag.Int64Var(&o.holds, "holds", o.holds, "with -faults none: end after so many locks")
	judge := flag.String("judge", "", "do not run: judge the histories that an earlier run left in this directory")
	flag.Parse()

	redis.SetLogger(quiet{}) // servers that are away are what this is about

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us as we stand
	var verdict bool
	var err error
	if *judge != "" {
		verdict, err = again(*judge, os.Stdout)
	} else {
		verdict, err = soak(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	if err != nil || !verdict {
		stop()
		os.Exit(1)
	}
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func defaults() options {
	return options{
		duration: 2 * time.Minute, seed: 1, provider: "processes", lock: "redlock", faults: "all", pace: time.Second,
		clients: 4, workers: 6, resources: 12, ttl: 1500 * time.Millisecond, clocks: true,
	}
}

// prepare checks the options and makes the output directory.
func (o *options) prepare() error {
	if lockers[o.lock] == nil {
		return fmt.Errorf("-lock %s: there is no such library here", o.lock)
	}
	if o.holds > 0 && o.faults != "none" {
		return fmt.Errorf("-holds counts fault-free holds: add -faults none")
	}
	if o.nodeTimeout == 0 {
		o.nodeTimeout = o.ttl / 6
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if o.out == "" {
		o.out = fmt.Sprint("soak-", o.seed)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(o.out, "*.jsonl"))
	if len(old) > 0 {
		return fmt.Errorf("%s has histories of an earlier run: name another directory with -out, or remove it", o.out)
	}
	return err
}

// only lists the faults that were asked for; nil is all of them.
func (o *options) only() []string {
	if o.faults == "all" {
		return nil
	}
	return strings.Split(o.faults, ",")
}

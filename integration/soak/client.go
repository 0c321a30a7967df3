package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// clientEnv holds the assignment of a client process. The client is this program, started again.
const clientEnv = "REDLOCK_SOAK_CLIENT"

// assignment is what a client process is told.
type assignment struct {
	Name        string // in the history
	Run         int    // how many processes of that name there were before
	Lock        string // which library
	Nodes       []string
	Store       string // host:port
	History     string // path
	Seed        uint64
	TTL         time.Duration
	NodeTimeout time.Duration
	Workers     int
	Resources   int
	Calm        bool  // no tricks: take, hold, give back
	Holds       int64 // end after so many; 0: when told to
}

// tally is what a client has done so far. It prints one each second, for the progress line.
type tally struct {
	Acquired, Failed, Lost, Writes, Refused int64
}

// client is the main function of a client process. It works until SIGTERM, gives everything back and ends.
func client(config string) error {
	var a assignment
	if err := json.Unmarshal([]byte(config), &a); err != nil {
		return err
	}
	redis.SetLogger(quiet{})
	history, err := redlocktest.OpenHistory(a.History)
	if err != nil {
		return err
	}
	rec := history.Client(a.Name)
	make := lockers[a.Lock]
	if make == nil {
		return fmt.Errorf("there is no lock %q", a.Lock)
	}
	lock, err := make(a, rec)
	if err != nil {
		return err
	}
	records := redis.NewClient(&redis.Options{Addr: a.Store, PoolSize: 2 * a.Workers})
	c := &worker{a: a, lock: lock, store: lock.store(records)}

	signal.Ignore(os.Interrupt) // Ctrl-C is for the soak, which ends its clients
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	work, done := context.WithCancel(ctx)
	var measuring, working sync.WaitGroup // both end with work, or at the last hold
	measuring.Go(func() { rec.MeasureDelay(work) })
	measuring.Go(func() { c.tell(work) })
	if !a.Calm {
		working.Go(func() { c.probe(ctx, rand.New(rand.NewPCG(a.Seed, uint64(a.Run*1000+999)))) })
	}
	for i := range a.Workers {
		working.Go(func() { c.run(ctx, rand.New(rand.NewPCG(a.Seed, uint64(a.Run*1000+i)))) })
	}
	working.Wait()
	// It records that this client has ended. What it could not give back, because servers are away, runs out; if it does
	// not, it is found on them.
	_ = lock.close()
	done()
	measuring.Wait()
	_ = records.Close()
	return history.Close()
}

// worker is what the goroutines of a client process share.
type worker struct {
	a     assignment // this group is read-only
	lock  locker
	store redlocktest.Store

	acquired, failed, lost, writes, refused atomic.Int64
}

func (c *worker) tally() tally {
	return tally{c.acquired.Load(), c.failed.Load(), c.lost.Load(), c.writes.Load(), c.refused.Load()}
}

// tell prints the tally each second and once at the end.
func (c *worker) tell(ctx context.Context) {
	out := json.NewEncoder(os.Stdout)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		_ = out.Encode(c.tally())
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = out.Encode(c.tally())
			return
		}
	}
}

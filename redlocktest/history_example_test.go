package redlocktest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// Two workers book on one account while a node is restarted and forgets everything.
// The history says whether they ever got in each other's way.
func ExampleHistory() {
	ctx := context.Background()
	nodes, err := redlocktest.New(3) // in a test: redlocktest.Start(t, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = nodes.Close() }()
	h := redlocktest.NewHistory()
	account := redlocktest.NewStore()

	// What is broken is recorded too: a loss must have a reason.
	restart := func(n *redlocktest.Node) error {
		h.Add(redlocktest.Record{Kind: redlocktest.Fault, Node: n.Addr(), Text: "restart"})
		defer h.Add(redlocktest.Record{Kind: redlocktest.Healed, Node: n.Addr(), Text: "restart"})
		return n.Restart()
	}
	worker := func(name string) error {
		r := h.Client(name)
		pool, err := redlock.New(nodes.Clients(), redlock.WithTTL(4*time.Second), redlock.WithObserver(r.Observer()),
			redlock.WithNodeTimeout(time.Second)) // a busy machine is not what is tested here
		if err != nil {
			return err
		}
		for i := range 25 {
			lock, err := r.Lock(ctx, pool, "account:42")
			if err != nil {
				return err
			}
			if name == "a" && i == 10 {
				if err := restart(nodes.Node(0)); err != nil {
					return err
				}
			}
			if err := lock.Write(ctx, account); err != nil {
				return err
			}
			if err := lock.Unlock(ctx); err != nil {
				return err
			}
		}
		_ = r.Close(pool) // it may say that the restarted node has not confirmed a release: that node has nothing to release
		return nil
	}
	var workers sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		workers.Go(func() {
			if err := worker(name); err != nil {
				fmt.Println(name, err)
			}
		})
	}
	workers.Wait()

	if _, err := h.LookForLeft(ctx, "lock:", nodes.Clients()...); err != nil {
		fmt.Println(err)
	}
	fmt.Println("check:", h.Check(redlocktest.WithFinal("account:42", account.Value("account:42"))))
	s := h.Summary()
	fmt.Println("acquired:", s.Acquired, "written:", s.Wrote, "lost:", s.Lost)

	// Output:
	// check: <nil>
	// acquired: 50 written: 50 lost: 0
}

// A lock of another kind is recorded by hand. This one is a key that expires, and
// a holder that never asks whether it has expired.
func ExampleHistory_Add() {
	var clock time.Duration
	h := redlocktest.NewHistory(redlocktest.WithClock(func() time.Duration { return clock }))
	expires := time.Duration(0)
	lock := func(client string) bool {
		began := h.Now()
		if expires > clock {
			return false
		}
		expires = clock + 10*time.Second
		h.Add(redlocktest.Record{Kind: redlocktest.Acquired, Client: client, Hold: client, Resources: []string{"invoice:7"}, Began: began})
		return true
	}
	unlock := func(client string) {
		h.Add(redlocktest.Record{Kind: redlocktest.Releasing, Client: client, Hold: client})
	}

	clock = time.Second
	lock("mailer-1")
	clock += 4 * time.Second
	fmt.Println("mailer-2 at first:", lock("mailer-2"))
	clock += 7 * time.Second // mailer-1 is slow today
	fmt.Println("mailer-2 later:", lock("mailer-2"))
	clock += time.Second
	unlock("mailer-1")
	unlock("mailer-2")
	fmt.Print(h.CheckExclusive())

	// Output:
	// mailer-2 at first: false
	// mailer-2 later: true
	// redlocktest: exclusive: two holds of "invoice:7" at the same time: that of mailer-1 is believed in until +12s, that of mailer-2 from +11s
	//   +0s   mailer-1  acquired   "invoice:7", since +0s
	//   +11s  mailer-2  acquired   "invoice:7", since +11s
	//   +12s  mailer-1  releasing
}

// A store of one's own is tested like this: its Increment has to compare the fence
// in the same step. This one forgets to.
func ExampleStore() {
	h := redlocktest.NewHistory()
	store := &forgetful{}
	for i, fence := range []uint64{41, 42, 41} { // the first owner was paused, and writes late
		value, _ := store.Increment(context.Background(), "account:42", fence)
		h.Add(redlocktest.Record{At: time.Duration(i+1) * time.Second, Kind: redlocktest.Wrote,
			Client: fmt.Sprintf("worker-%d", fence), Resources: []string{"account:42"}, Fence: fence, Value: value})
	}
	fmt.Print(h.CheckStore())

	// Output:
	// redlocktest: store: the store of "account:42" took a write with the fence 41 after one with 42
	//   +0s  worker-42  wrote  "account:42", fence 42, value 2
	//   +1s  worker-41  wrote  "account:42", fence 41, value 3
}

// forgetful is a store that takes every fence.
type forgetful struct{ value int64 }

func (f *forgetful) Increment(context.Context, string, uint64) (int64, error) {
	f.value++
	return f.value, nil
}

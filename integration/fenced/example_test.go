package fenced_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/fenced"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	_ "modernc.org/sqlite"
)

// A job is paused between taking the lock and writing. By the time it goes on another has the lock, has claimed the
// record and written it: Redis refuses the late write.
func ExampleRecords() {
	ctx := context.Background()
	nodes, err := redlocktest.New(4) // three for the lock; the fourth is the store, a Redis of its own
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = nodes.Close() }()
	a, b := process(nodes), process(nodes)
	defer func() { _, _ = a.Close(), b.Close() }()
	store := fenced.Records{Client: nodes.Node(3).Client()}

	// The first takes the lock, claims, decides, and is paused until its lease is over.
	first, err := a.Lock(ctx, "rate:EURUSD", redlock.WithLease(300*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := store.Claim(ctx, "rate:EURUSD", first.Fence()); err != nil {
		log.Fatal(err)
	}
	<-first.Lost()

	// The second has it now.
	second, err := b.Lock(ctx, "rate:EURUSD")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = second.Unlock(ctx) }()
	fmt.Println("the fence has risen:", second.Fence() > first.Fence())
	if _, err := store.Claim(ctx, "rate:EURUSD", second.Fence()); err != nil {
		log.Fatal(err)
	}
	for _, rate := range []string{"1.0840", "1.0841"} { // one owner may write as often as it likes
		fmt.Println("second:", store.Write(ctx, "rate:EURUSD", second.Fence(), rate))
	}

	// The first goes on where it was, with what it had decided.
	err = store.Write(ctx, "rate:EURUSD", first.Fence(), "1.0795")
	if errors.Is(err, fenced.ErrStale) {
		fmt.Println("first: refused by the store")
	}
	if errors.Is(first.Err(), redlock.ErrLost) { // the lock tells it too, to those who ask in time
		fmt.Println("first: the lock is lost")
	}
	value, err := store.Claim(ctx, "rate:EURUSD", second.Fence())
	fmt.Println(value, err)

	// Output:
	// the fence has risen: true
	// second: <nil>
	// second: <nil>
	// first: refused by the store
	// first: the lock is lost
	// 1.0841 <nil>
}

// The same with a database: a payment that was decided under a lock which is over is not booked.
func ExampleAccounts() {
	ctx := context.Background()
	nodes, err := redlocktest.New(3)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = nodes.Close() }()
	a, b := process(nodes), process(nodes)
	defer func() { _, _ = a.Close(), b.Close() }()

	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, fenced.Schema); err != nil {
		log.Fatal(err)
	}
	ledger := fenced.Accounts{DB: db}

	// The first has the lock and the account's row, and is paused until its lease is over.
	first, err := a.Lock(ctx, "account:42", redlock.WithLease(300*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ledger.Claim(ctx, "42", first.Fence()); err != nil {
		log.Fatal(err)
	}
	<-first.Lost()

	// The second books two payments.
	second, err := b.Lock(ctx, "account:42")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = second.Unlock(ctx) }()
	before, err := ledger.Claim(ctx, "42", second.Fence())
	fmt.Println("second finds", before, err)
	fmt.Println("second:", ledger.Post(ctx, "42", second.Fence(), "payment-1", 1500))
	fmt.Println("second:", ledger.Post(ctx, "42", second.Fence(), "payment-2", -300))

	// The first goes on where it was.
	switch err := ledger.Post(ctx, "42", first.Fence(), "payment-3", -1500); {
	case errors.Is(err, fenced.ErrStale):
		fmt.Println("first: refused by the store; lost:", errors.Is(first.Err(), redlock.ErrLost))
	case err != nil:
		log.Fatal(err)
	}
	after, err := ledger.Claim(ctx, "42", second.Fence())
	fmt.Println("balance", after, err)

	// Output:
	// second finds 0 <nil>
	// second: <nil>
	// second: <nil>
	// first: refused by the store; lost: true
	// balance 1200 <nil>
}

// process stands for one of the programs that share the lock.
func process(nodes *redlocktest.Nodes) *redlock.Pool {
	pool, err := redlock.Open(nodes.URLs()[:3])
	if err != nil {
		log.Fatal(err)
	}
	return pool
}

package redlock_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
)

func transfer(ctx context.Context) error { return ctx.Err() }

func Example() {
	pool, err := redlock.Open([]string{
		"redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379",
		"redis://10.0.0.4:6379", "redis://10.0.0.5:6379",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = pool.Do(context.Background(), "account:42", func(ctx context.Context) error {
		return transfer(ctx) // ctx ends when the lock is lost
	})
	switch {
	case errors.Is(err, redlock.ErrLost):
		log.Print("stopped: the lock was lost while we worked: ", err)
	case err != nil:
		log.Print(err)
	}
}

// The other half of a lock: the store refuses a fence below the highest that it has seen, in the same step as the write.
func ExampleLock_Fence() {
	pool, err := redlock.New([]*redis.Client{ /* your clients, one per independent server */ })
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	var db *sql.DB // yours

	lock, err := pool.Lock(context.Background(), "account:42")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(context.Background())
	result, err := db.ExecContext(lock.Context(),
		"UPDATE accounts SET balance = balance - 100, fence = ? WHERE id = 42 AND fence <= ?", lock.Fence(), lock.Fence())
	if err != nil {
		log.Fatal(err)
	}
	if rows, _ := result.RowsAffected(); rows == 0 {
		log.Fatal("a later owner has been here: stop")
	}
}

func ExamplePool_TryLock() {
	pool, err := redlock.New([]*redis.Client{ /* your clients, one per independent server */ })
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ctx := context.Background()

	lock, err := pool.TryLock(ctx, "account:42", redlock.WithTTL(10*time.Second))
	switch {
	case errors.Is(err, redlock.ErrHeld):
		return // somebody else is at it
	case errors.Is(err, redlock.ErrNoQuorum):
		log.Print("cannot know: ", err) // names every node that did not answer, and why
		return
	case err != nil:
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)

	for range 100 {
		if !lock.Valid() { // right before each write; a store that can compare is better still
			log.Print(lock.Err())
			return
		}
		// write one row
	}
}

func ExamplePool_MultiLock() {
	pool, err := redlock.Open([]string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	// Both accounts or none, in one round trip per node; the order does not matter.
	lock, err := pool.MultiLock(context.Background(), []string{"account:42", "account:7"})
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(context.Background())
	select {
	case <-lock.Lost():
		log.Print(lock.Err())
	case <-time.After(time.Second): // the work
	}
}

package redlocktest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// In a test, Start(t, 3) does the same and closes the nodes by itself.
func Example() {
	ctx := context.Background()
	nodes, err := redlocktest.New(3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = nodes.Close() }()

	// A client that gives up soon, so that a frozen node shows.
	client := redis.NewClient(&redis.Options{
		Addr:        nodes.Node(0).Addr(),
		ReadTimeout: 50 * time.Millisecond,
		MaxRetries:  -1,
	})
	defer func() { _ = client.Close() }()
	fmt.Println("healthy:", client.Set(ctx, "lock:order-17", "token-1", time.Minute).Err())

	// What a frozen node was sent is executed after the thaw, though nobody waits for it any more.
	nodes.Node(0).Freeze()
	err = client.Set(ctx, "lock:order-17", "token-2", time.Minute).Err()
	fmt.Println("frozen: an error:", err != nil)
	seen := nodes.Node(0).Requests("SET")
	nodes.Node(0).Thaw()
	if err := nodes.Node(0).WaitRequests(ctx, "SET", seen+1); err != nil {
		fmt.Println(err)
		return
	}
	value, _ := nodes.Node(0).Get("lock:order-17")
	fmt.Println("thawed:", value)

	// A restart forgets everything.
	if err := nodes.Node(0).Restart(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("restarted:", nodes.Node(0).Keys())

	// Output:
	// healthy: <nil>
	// frozen: an error: true
	// thawed: token-2
	// restarted: []
}

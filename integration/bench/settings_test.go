package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// What the servers' settings do: the figures of docs/operations.md.

// BenchmarkPersistence is Lock + Unlock on servers that keep nothing, and with an append-only file that is flushed each
// second or at every write. All five share one disk, which is more than servers of their own have to bear.
func BenchmarkPersistence(b *testing.B) {
	var ls []locker
	for _, mode := range []struct {
		name string
		opts []servers.Option
	}{
		{"nothing", nil},
		{"everysec", []servers.Option{servers.WithAOF(), servers.WithArgs("--appendfsync", "everysec")}},
		{"always", []servers.Option{servers.WithAOF(), servers.WithArgs("--appendfsync", "always")}},
	} {
		_, l := newRedlock(b, servers.Start(b, 5, mode.opts...).URLs())
		l.name = mode.name
		ls = append(ls, l)
	}
	for _, callers := range []int{1, 64, 256} {
		all := sideBySide(ls, callers, time.Second)
		table(fmt.Sprintf("\n%d callers\tpairs/s\tof nothing kept\tLock p50\tis\tLock p99\tfailed\t", callers), func(w *tabwriter.Writer) {
			for i, l := range ls {
				s := all[i]
				fmt.Fprintf(w, "%s\t%.0f\t%.2f x\t%v\t%.2f x\t%v\t%d\t\n", l.name, median(s, perSec), ratio(s, all[0], perSec),
					median(s, func(s sample) time.Duration { return s.p50 }), ratio(s, all[0], p50),
					median(s, func(s sample) time.Duration { return s.p99 }), median(s, func(s sample) int { return s.failed }))
			}
		})
		b.ReportMetric(ratio(all[1], all[0], perSec), fmt.Sprintf("x_everysec_%d", callers))
		b.ReportMetric(ratio(all[2], all[0], perSec), fmt.Sprintf("x_always_%d", callers))
	}
}

// BenchmarkEviction fills servers that may hold no more than 4 MB with data that does not expire, while 200 locks are
// held there, and counts the locks' keys that are left.
func BenchmarkEviction(b *testing.B) {
	const locks = 200
	ctx := context.Background()
	for _, policy := range []string{"noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru"} {
		set := servers.Start(b, 1, servers.WithArgs("--maxmemory", "4mb", "--maxmemory-policy", policy))
		p, _ := newRedlock(b, set.URLs(), redlock.WithRestartGuard(0), redlock.WithLease(time.Minute))
		for i := range locks {
			_, err := p.Lock(ctx, fmt.Sprint("r", i))
			require.NoError(b, err)
		}
		c := set.Server(0).Client()
		var err error
		added := 0
		for err == nil && added < 20_000 {
			pipe := c.Pipeline()
			for range 200 {
				pipe.Set(ctx, fmt.Sprint("data", added), strings.Repeat("x", 400), 0)
				added++
			}
			_, err = pipe.Exec(ctx)
		}
		left := 0
		for i := range locks {
			left += int(c.Exists(ctx, fmt.Sprint("lock:r", i)).Val())
		}
		fmt.Printf("%s: %d of %d locks left, %d of our hash; other data: %d written, last error %v\n",
			policy, left, locks, c.Exists(ctx, "lock:redlock:node").Val(), added, err)
	}
}

// BenchmarkServerMemory is what a server keeps for us.
func BenchmarkServerMemory(b *testing.B) {
	set := servers.Start(b, 1)
	p, _ := newRedlock(b, set.URLs())
	ctx := context.Background()
	c := set.Server(0).Client()
	used := func(key string) int64 {
		n, err := c.MemoryUsage(ctx, key, 0).Result()
		if err != redis.Nil {
			require.NoError(b, err)
		}
		return n
	}
	for _, n := range []int{1, 10, 100, 1000, 10_000, 20_000} {
		for i := range n {
			l, err := p.Lock(ctx, fmt.Sprint("r", i))
			require.NoError(b, err)
			require.NoError(b, l.Unlock(ctx))
		}
		fmt.Printf("%d resources: %d counters, %d bytes, %s\n", n, c.HLen(ctx, "lock:redlock:node").Val(), used("lock:redlock:node"),
			c.ObjectEncoding(ctx, "lock:redlock:node").Val())
	}
	_, err := p.Lock(ctx, "account:42")
	require.NoError(b, err)
	fmt.Printf("a lock on account:42 with the default label: %d bytes\n", used("lock:account:42"))
}

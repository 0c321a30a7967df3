package bench

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"
)

// redsyncHeld is the cores that redsync takes for n locks, extended every 3 s by 64 goroutines that share the work.
func redsyncHeld(b *testing.B, urls []string, n int, watch time.Duration) float64 {
	var pools []redsyncPool
	for _, c := range newClients(b, urls) {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	var all []*redsync.Mutex
	for i := range n {
		m := rs.NewMutex(fmt.Sprintf("redsync:held-%d", i), redsync.WithExpiry(30*time.Second))
		require.NoError(b, m.Lock())
		all = append(all, m)
	}
	const workers, every = 64, 3 * time.Second
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				for i := w; i < n; i += workers {
					if ok, err := all[i].Extend(); !ok {
						b.Errorf("redsync lost one: %v", err)
						return
					}
				}
				select {
				case <-stop:
					return
				case <-tick.C:
				}
			}
		})
	}
	time.Sleep(every)
	begin, start := cpu(), time.Now()
	time.Sleep(watch)
	cores := float64(cpu()-begin) / float64(time.Since(start))
	close(stop)
	wg.Wait()
	return cores
}

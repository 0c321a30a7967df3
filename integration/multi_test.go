package integration_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

func TestOverlappingMultiLocksAllFinish(t *testing.T) { // FAULTS 44
	onEvery(t, func(t *testing.T, r *rig) {
		retry := redlock.WithRetry(2*time.Millisecond, 50*time.Millisecond)
		pools := []*redlock.Pool{r.pool(retry), r.pool(retry), r.pool(retry)}
		rounds := 4
		if r.Provider() == servers.Embedded {
			rounds = 1 // its scripts take their time
		}
		var mu sync.Mutex
		busy := map[string]int{}
		touch := func(l *redlock.Lock, d int) {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range l.Resources() {
				if busy[name] += d; busy[name] > 1 {
					t.Errorf("two holders of %s", name)
				}
			}
		}
		var workers sync.WaitGroup
		start := time.Now()
		for w := range 50 {
			workers.Go(func() {
				for range rounds {
					var names []string
					for range 1 + rand.IntN(4) { // in any order, with duplicates
						names = append(names, fmt.Sprint("r", rand.IntN(10)))
					}
					l, err := pools[w%len(pools)].MultiLock(bg, names)
					if err != nil {
						t.Error(err)
						return
					}
					touch(l, 1)
					if !l.Valid() {
						t.Error("not valid")
					}
					touch(l, -1)
					if err := l.Unlock(bg); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		t.Logf("%d locks took %v", 50*rounds, time.Since(start))
		require.Empty(t, busyOnes(busy))
	})
}

func busyOnes(busy map[string]int) (names []string) {
	for name, n := range busy {
		if n != 0 {
			names = append(names, name)
		}
	}
	return names
}

func TestMultiLockIsAllOrNothing(t *testing.T) { // FAULTS 45
	onEvery(t, func(t *testing.T, r *rig) {
		p, rival := r.pool(redlock.WithTTL(2*time.Second)), r.pool()
		warm(t, p)
		warm(t, rival)
		b, err := rival.Lock(bg, "b")
		require.NoError(t, err)
		r.owned(b, 5, nodeTimeout)
		before := r.sets(0)
		_, err = p.TryMultiLock(bg, []string{"c", "a", "b", "c"})
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorContains(t, err, `: "b"`)
		throughout(t, nodeTimeout, func() error {
			for i := range r.Len() {
				if n := r.Server(i).Client().Exists(bg, "lock:a", "lock:c").Val(); n != 0 {
					return fmt.Errorf("%d keys on server %d", n, i)
				}
			}
			return nil
		})
		require.Equal(t, before, r.sets(0), "not even for a moment")
		require.Equal(t, 5, r.owners("lock:b", b.Token()))
		require.NoError(t, b.Unlock(bg))

		l, err := p.MultiLock(bg, []string{"c", "a", "b", "c"})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, l.Resources())
		eventually(t, nodeTimeout, "on all", func() error {
			return is(r.owners("lock:a", l.Token())+r.owners("lock:b", l.Token())+r.owners("lock:c", l.Token()) == 15)
		})
		for _, name := range []string{"a", "b", "c"} {
			_, err := rival.TryLock(bg, name)
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		renewals(t, p, 1)

		// One key gone on a majority loses all of them.
		for _, i := range majority {
			require.NoError(t, r.Server(i).Client().Del(bg, "lock:b").Err())
		}
		eventually(t, time.Second, "lost", func() error { return is(!l.Valid()) })
		require.ErrorIs(t, l.Err(), redlock.ErrHeld)
		r.gone()
	})
}

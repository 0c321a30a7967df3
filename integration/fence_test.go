package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/fenced"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// book is a store that checks the fence: a Redis URL or, on disk, an SQLite file.
type book struct {
	claim func(fence uint64) (string, error)
	write func(fence uint64, value int64) error
	close func()
}

func openBook(at string) (book, error) {
	if strings.HasPrefix(at, "redis://") {
		opts, err := redis.ParseURL(at)
		if err != nil {
			return book{}, err
		}
		c := redis.NewClient(opts)
		records := fenced.Records{Client: c}
		return book{
			claim: func(fence uint64) (string, error) { return records.Claim(bg, "a", fence) },
			write: func(fence uint64, value int64) error { return records.Write(bg, "a", fence, fmt.Sprint(value)) },
			close: func() { _ = c.Close() },
		}, nil
	}
	db, err := sql.Open("sqlite", "file:"+at+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return book{}, err
	}
	accounts := fenced.Accounts{DB: db}
	_, err = db.Exec(fenced.Schema)
	return book{
		claim: func(fence uint64) (string, error) {
			cents, err := accounts.Claim(bg, "a", fence)
			return fmt.Sprint(cents), err
		},
		write: func(fence uint64, value int64) error { return accounts.SetBalance(bg, "a", fence, value) },
		close: func() { _ = db.Close() },
	}, err
}

// write is what a holder does with its lock: it writes value with its fence, whatever has become of the lock.
func (w *watch) write(at, value string) {
	b, err := openBook(at)
	if err == nil {
		defer b.close()
		n, _ := strconv.ParseInt(value, 10, 64)
		_, claimed := b.claim(w.l.Fence())
		err = errors.Join(claimed, b.write(w.l.Fence(), n))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.r.Wrote, w.r.Stale = err == nil, errors.Is(err, fenced.ErrStale)
}

func TestAStoreThatChecksTheFenceRefusesTheOldHolder(t *testing.T) { // FAULTS 36
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		store := servers.Start(t, 1, servers.WithProvider(r.Provider())).Server(0)
		for _, at := range []string{store.URL(), filepath.Join(t.TempDir(), "book.db")} {
			old, rival := r.holder(r.URLs(), ttl), r.pool(redlock.WithTTL(ttl))
			b, err := openBook(at)
			require.NoError(t, err)
			t.Cleanup(b.close)

			// 1. The old holder finds its lock valid, and is paused before its second write.
			held := old.ask("try")
			require.True(t, held.Held, held.Err)
			require.True(t, old.ask("write "+at+" 1").Wrote)
			require.True(t, old.ask("report").Valid)
			old.freeze()

			// 2. Another takes over.
			l := mustLock(t, rival)
			require.Greater(t, l.Fence(), held.Fence)
			read, err := b.claim(l.Fence())
			require.NoError(t, err)
			require.Equal(t, "1", read)

			// 3. The old one goes on, with a write that it had begun: too late even though nothing new was written yet.
			old.tell("write " + at + " 666")
			old.thaw()
			late := old.hear()
			require.True(t, late.Stale)
			require.False(t, late.Wrote)
			require.NoError(t, b.write(l.Fence(), 2))
			require.NoError(t, b.write(l.Fence(), 3), "the same owner writes as often as it likes")
			require.True(t, old.ask("write "+at+" 667").Stale)
			now, err := b.claim(l.Fence())
			require.NoError(t, err)
			require.Equal(t, "3", now)
			require.NoError(t, l.Unlock(bg))
		}
	})
}

func TestAStoreThatChecksTheFenceRefusesAfterALease(t *testing.T) { // FAULTS 36
	onEvery(t, func(t *testing.T, r *rig) {
		b, err := openBook(filepath.Join(t.TempDir(), "book.db"))
		require.NoError(t, err)
		t.Cleanup(b.close)
		old := mustLock(t, r.pool(), redlock.WithLease(300*time.Millisecond))
		_, err = b.claim(old.Fence())
		require.NoError(t, err)
		require.NoError(t, b.write(old.Fence(), 1))
		awaitLoss(t, old)

		l := mustLock(t, r.pool())
		_, err = b.claim(l.Fence())
		require.NoError(t, err)
		require.ErrorIs(t, b.write(old.Fence(), 666), fenced.ErrStale)
		require.ErrorIs(t, old.Err(), redlock.ErrLost)
		require.NoError(t, l.Unlock(bg))
	})
}

// register is a list on a server of its own to which each owner adds its name and fence while it has the lock: their
// order is that of ownership.
const register = "fences"

// enter writes the lock into the register, and fails if the lock was over by then.
func enter(c *redis.Client, name string, l *redlock.Lock) error {
	err := c.RPush(bg, register, fmt.Sprint(name, " ", l.Fence())).Err()
	if err == nil && !l.Valid() {
		err = fmt.Errorf("not valid: %w", l.Err())
	}
	return err
}

// own has a holder own the lock n times, each time anew.
func (w *watch) own(p *redlock.Pool, url, n string) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		panic(err)
	}
	c := redis.NewClient(opts)
	defer func() { _ = c.Close() }()
	rounds, _ := strconv.Atoi(n)
	for range rounds {
		l, lockErr := p.Lock(bg, "a", redlock.WithRetry(time.Millisecond, 4*time.Millisecond))
		if err = lockErr; err == nil {
			err = errors.Join(enter(c, fmt.Sprint(os.Getpid()), l), l.Unlock(bg))
			time.Sleep(time.Millisecond) // somebody else's turn
		}
		if err != nil {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.r.Err = err.Error()
	}
}

// stripeOf is the counter of a resource.
func stripeOf(resource string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(resource))
	return strconv.Itoa(int(h.Sum32() % 1024))
}

// counter is what a server's counter for "a" says; 0 if it has none.
func (r *rig) counter(i int) uint64 {
	n, _ := r.Server(i).Client().HGet(bg, "lock:"+stateKey, stripeOf("a")).Uint64()
	return n
}

// Three processes hand a lock round. The servers' counters begin an hour ahead of the clocks, so that what the processes
// propose is of no use: it is for the counters to keep the order, whichever server forgets them.
func TestFencesRiseOverHandoversAndForgetfulServers(t *testing.T) { // FAULTS 35
	onReal(t, func(t *testing.T, outer *rig) {
		const ttl, each = 5 * time.Second, 400
		r := &rig{Set: servers.Start(t, 5, servers.WithProvider(outer.Provider()), servers.WithAOF()), t: t}
		list := servers.Start(t, 1, servers.WithProvider(outer.Provider())).Server(0)
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i := range r.Len() {
			require.NoError(t, r.Server(i).Client().HSet(bg, "lock:"+stateKey, stripeOf("a"), ahead).Err())
		}
		p := outer.poolOf(r.URLs(), redlock.WithTTL(ttl))
		var holders []*process
		for range 3 {
			h := r.holder(r.URLs(), ttl)
			h.tell(fmt.Sprintf("own %s %d", list.URL(), each))
			holders = append(holders, h)
		}

		// A server that keeps its data may restart at any time. One that forgets does so while the lock is on all five,
		// and the next does not until it is up to date again.
		owners := func() int { return int(list.Client().LLen(bg, register).Val()) }
		faults := 0
		forget := func(how func(i int)) {
			i := faults % r.Len()
			l, err := p.Lock(bg, "a", redlock.WithRetry(time.Millisecond, 4*time.Millisecond))
			require.NoError(t, err)
			require.NoError(t, enter(list.Client(), "test", l))
			if l.Margin() < 2 { // some were late
				require.NoError(t, l.Extend(bg))
			}
			r.owned(l, r.Len(), patience)
			how(i)
			require.True(t, l.Valid())
			require.NoError(t, l.Unlock(bg))
			eventually(t, patience, "its counter is up to date", func() error {
				return is(r.counter(i) > l.Fence() || owners() >= 3*each)
			})
		}
		for ; owners() < 3*each; faults++ {
			eventually(t, patience, "some handovers on", func() error { return is(owners() >= min(faults*each/6, 3*each)) })
			switch faults % 4 {
			case 0:
				forget(func(i int) { require.NoError(t, r.Server(i).Client().FlushAll(bg).Err()) })
			case 1:
				r.Server(faults % r.Len()).RestartKeeping()
			case 2:
				forget(func(i int) {
					for k := range 2 {
						require.NoError(t, r.Server((i+k)%r.Len()).Client().Del(bg, "lock:a").Err())
					}
				})
			case 3:
				forget(func(i int) { r.Server(i).Restart() })
			}
		}
		for _, h := range holders {
			select {
			case end, ok := <-h.answers:
				require.True(t, ok)
				require.Empty(t, end.Err)
			case <-time.After(time.Minute):
				t.Fatal("a holder does not end")
			}
		}

		entries := list.Client().LRange(bg, register, 0, -1).Val()
		require.GreaterOrEqual(t, len(entries), 3*each)
		require.GreaterOrEqual(t, faults, 8)
		handovers := requireRising(t, entries, ahead)
		require.Greater(t, handovers, len(entries)/10)
		t.Logf("%d owners, %d of them after another process, %d faults", len(entries), handovers, faults)
	})
}

// requireRising checks a register's fences, and counts how often the owner was another process than before.
func requireRising(t *testing.T, entries []string, above uint64) (handovers int) {
	t.Helper()
	before := ""
	for i, e := range entries {
		name, number, _ := strings.Cut(e, " ")
		if name != before {
			handovers++
		}
		before = name
		f, err := strconv.ParseUint(number, 10, 64)
		require.NoError(t, err)
		require.Greater(t, f, above, "owner %d of %d: %q", i, len(entries), entries[max(0, i-3):min(i+3, len(entries))])
		above = f
	}
	return handovers
}

// One server's counter is an hour ahead, and every other round two of the others are away, so that this one has to be
// counted: the rest of the majority is raised to what it says before the lock is told.
func TestFencesRiseWhateverServersAreAway(t *testing.T) { // FAULTS 35
	onEvery(t, func(t *testing.T, r *rig) {
		pools := []*redlock.Pool{r.pool(), r.pool(), r.pool()}
		for _, p := range pools {
			warm(t, p)
		}
		require.NoError(t, r.Server(0).Client().HSet(bg, "lock:"+stateKey, stripeOf("a"),
			time.Now().Add(time.Hour).UnixMicro()).Err())
		last := uint64(0)
		for i := range 20 {
			away := []int{1 + i%4, 1 + (i+1)%4} // never the one that is ahead
			if i%2 == 0 {
				r.freeze(away...)
			}
			ctx, cancel := context.WithTimeout(bg, patience)
			l, err := pools[i%3].Lock(ctx, "a")
			cancel()
			require.NoError(t, err)
			require.Greater(t, l.Fence(), last)
			last = l.Fence()
			carry := 0
			for k := range r.Len() {
				if i%2 == 1 || k != away[0] && k != away[1] {
					if r.counter(k) >= last {
						carry++
					}
				}
			}
			require.GreaterOrEqual(t, carry, 3)
			require.NoError(t, l.Unlock(bg))
			r.thaw(away...)
		}
	})
}

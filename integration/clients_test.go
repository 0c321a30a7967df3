package integration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// clients makes one client for each server, closed after the test's pools.
func (r *rig) clients(options func(i int) redis.Options) []*redis.Client {
	var cs []*redis.Client
	for i := range r.Len() {
		o := options(i)
		o.Addr = r.Server(i).Addr()
		c := redis.NewClient(&o)
		r.last(func() { _ = c.Close() })
		cs = append(cs, c)
	}
	return cs
}

func TestAnyClientsGiveTheSameOutcomes(t *testing.T) { // FAULTS 2, 37
	for name, options := range map[string]func(i int) redis.Options{
		"the defaults of go-redis": func(int) redis.Options { return redis.Options{} },
		"RESP2":                    func(int) redis.Options { return redis.Options{Protocol: 2} },
		"RESP3":                    func(int) redis.Options { return redis.Options{Protocol: 3} },
		"RESP2 and RESP3 mixed":    func(i int) redis.Options { return redis.Options{Protocol: 2 + i%2} },
		"ctx timeouts":             func(int) redis.Options { return redis.Options{ContextTimeoutEnabled: true} },
		"one connection, in use":   func(int) redis.Options { return redis.Options{PoolSize: 1, PoolTimeout: time.Millisecond} },
		"no timeouts": func(int) redis.Options {
			return redis.Options{ReadTimeout: -1, WriteTimeout: -1, DialTimeout: time.Hour}
		},
		"many retries": func(int) redis.Options { return redis.Options{MaxRetries: 50, MinRetryBackoff: time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, r *rig) {
				const ttl = time.Second
				clients := r.clients(options)
				if name == "one connection, in use" {
					for _, c := range clients {
						conn := c.Conn() // the user keeps it
						require.NoError(t, conn.Ping(bg).Err())
						r.last(func() { _ = conn.Close() })
						require.Error(t, c.Ping(bg).Err())
					}
				}
				p, rival := r.poolOn(clients, redlock.WithTTL(ttl)), r.pool(redlock.WithTTL(ttl))
				warm(t, p)
				warm(t, rival)

				l := mustLock(t, p)
				r.owned(l, 5, nodeTimeout)
				_, err := rival.TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.NoError(t, l.Extend(bg))
				require.NoError(t, l.Unlock(bg))
				other := mustLock(t, rival)
				_, err = p.TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.NoError(t, other.Unlock(bg))

				// Faults end the same way, too: in a node timeout, not in that of the client.
				l = mustLock(t, p)
				r.freeze(majority...)
				within(t, nodeTimeout, "TryLock", func() {
					_, err := p.TryLock(bg, "b")
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				})
				eventually(t, slack, "the nodes are out", func() error {
					for _, n := range p.Stats().Nodes[:len(majority)] {
						if n.Down != "no answer within 250ms" {
							return fmt.Errorf("%q", n.Down)
						}
					}
					return nil
				})
				require.Less(t, awaitLoss(t, l), slack)
				require.ErrorIs(t, l.Err(), redlock.ErrNoQuorum)
			})
		})
	}
}

func TestAnotherRedlockLibraryIsExcludedAndExcludes(t *testing.T) { // FAULTS 40
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithKeyPrefix(""))
		var theirs []syncredis.Pool
		for _, c := range r.Clients() {
			theirs = append(theirs, goredis.NewPool(c))
		}
		m := redsync.New(theirs...).NewMutex("a", redsync.WithExpiry(ten), redsync.WithTries(1))

		// 1. Ours keeps theirs out, also after renewals, and lets it in afterwards.
		l := mustLock(t, p, redlock.WithTTL(time.Second))
		eventually(t, nodeTimeout, "on all", func() error { return is(r.owners("a", l.Token()) == 5) })
		renewals(t, p, 2)
		var taken *redsync.ErrTaken
		require.ErrorAs(t, m.TryLock(), &taken)
		require.Len(t, taken.Nodes, 5)
		require.Equal(t, 5, r.owners("a", l.Token()), "theirs touches nothing of ours")
		require.NoError(t, l.Unlock(bg))

		// 2. And the other way round.
		eventually(t, slack, "free", func() error { return none(r.keys()) })
		require.NoError(t, m.TryLock())
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.Equal(t, 5, r.owners("a", m.Value()), "ours touches nothing of theirs")
		ok, err := m.Extend()
		require.NoError(t, err)
		require.True(t, ok)
		_, err = p.TryMultiLock(bg, []string{"b", "a"})
		require.ErrorIs(t, err, redlock.ErrHeld)
		ok, err = m.Unlock()
		require.NoError(t, err)
		require.True(t, ok)
		l = mustLock(t, p)
		require.NoError(t, l.Unlock(bg))

		// 3. Racing for it, never both.
		inside := make(chan struct{}, 1)
		enter := func(who string) {
			select {
			case inside <- struct{}{}:
				<-inside
			default:
				t.Errorf("%s is not alone", who)
			}
		}
		done := make(chan error)
		go func() {
			for range 50 {
				m := redsync.New(theirs...).NewMutex("a", redsync.WithExpiry(ten), redsync.WithTries(1000),
					redsync.WithRetryDelay(5*time.Millisecond))
				if err := m.Lock(); err != nil {
					done <- err
					return
				}
				enter("theirs")
				if _, err := m.Unlock(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for range 50 {
			l := mustLock(t, p, redlock.WithRetry(time.Millisecond, 20*time.Millisecond))
			enter("ours")
			if err := l.Unlock(bg); err != nil && !errors.Is(err, redlock.ErrLost) {
				require.NoError(t, err)
			}
		}
		require.NoError(t, <-done)
	})
}

func TestPoolsThatCannotBeSafeAreRefused(t *testing.T) { // FAULTS 34
	some := func(n int) (urls []string) {
		for i := range n {
			urls = append(urls, fmt.Sprintf("redis://10.0.0.%d:6379", i+1))
		}
		return urls
	}
	for name, row := range map[string]struct {
		urls []string
		opts []redlock.Option
		word string // of the sentence that says what to do
	}{
		"no nodes":           {nil, nil, "give at least one"},
		"below a majority":   {some(5), []redlock.Option{redlock.WithQuorum(redlock.AtLeast(2))}, "at least 3 must grant"},
		"above all":          {some(5), []redlock.Option{redlock.WithQuorum(redlock.AtLeast(6))}, "use at most 5"},
		"nonsense":           {some(5), []redlock.Option{redlock.WithQuorum(redlock.AtLeast(-3))}, "at least 3 must grant"},
		"the same twice":     {append(some(2), some(1)...), nil, "must not vote twice"},
		"a long timeout":     {some(5), []redlock.Option{redlock.WithTTL(time.Second), redlock.WithNodeTimeout(time.Second)}, "set at most 250ms"},
		"a lease and a hold": {some(5), []redlock.Option{redlock.WithLease(time.Second), redlock.WithMaxHold(time.Second)}, "exclude each other"},
		"no TTL left":        {some(5), []redlock.Option{redlock.WithTTL(2 * time.Millisecond)}, "the smallest that works"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := redlock.Open(row.urls, row.opts...)
			require.ErrorContains(t, err, row.word)
			require.Nil(t, p)
		})
	}
}

func TestFewOrEvenNodesWorkAndWarnOnce(t *testing.T) { // FAULTS 34
	onEvery(t, func(t *testing.T, r *rig) {
		for n, failures := range map[int]int{1: 0, 2: 0, 4: 1} {
			var rec recorder
			p := r.poolOf(r.URLs()[:n], redlock.WithObserver(rec.observer()))
			warm(t, p)
			r.freeze(all[:failures]...)
			l := mustLock(t, p)
			require.NoError(t, l.Unlock(bg))
			r.freeze(failures)
			_, err := p.TryLock(bg, "a")
			require.ErrorIs(t, err, redlock.ErrNoQuorum, "%d nodes do not survive %d failures", n, failures+1)
			r.thaw(all...)
			eventually(t, time.Second, "the warning", func() error { return is(len(rec.of("warning")) > 0) })
			require.Len(t, rec.of("warning"), 1)
			require.NotEmpty(t, rec.of("warning")[0].Err.Error())
			r.gone()
		}
		for _, n := range []int{3, 5} {
			var rec recorder
			warm(t, r.poolOf(r.URLs()[:n], redlock.WithObserver(rec.observer())))
			require.Empty(t, rec.of("warning"))
		}
	})
}

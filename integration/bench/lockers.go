package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// locker is one way to take a quorum lock.
type locker struct {
	name string
	lock func(ctx context.Context, resource string) (unlock func() error, err error)
}

const ttl = 9 * time.Second

// newRedlock is a pool with everything on, its restart guard too. The servers have just been started, so the first lock
// waits for the guard to be over.
func newRedlock(b testing.TB, urls []string, opts ...redlock.Option) (*redlock.Pool, locker) {
	p, err := redlock.Open(urls, append([]redlock.Option{redlock.WithTTL(ttl)}, opts...)...)
	require.NoError(b, err)
	b.Cleanup(func() { _ = p.Close() })
	l, err := p.Lock(context.Background(), "first")
	require.NoError(b, err)
	require.NoError(b, l.Unlock(context.Background()))
	return p, locker{"redlock", func(ctx context.Context, resource string) (func() error, error) {
		l, err := p.Lock(ctx, resource)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Unlock(ctx) }, nil
	}}
}

func newClients(b testing.TB, urls []string) []*redis.Client {
	var cs []*redis.Client
	for _, u := range urls {
		o, err := redis.ParseURL(u)
		require.NoError(b, err)
		c := redis.NewClient(o)
		b.Cleanup(func() { _ = c.Close() })
		cs = append(cs, c)
	}
	return cs
}

func newRedsync(b testing.TB, urls []string, failFast bool) locker {
	var pools []redsyncPool
	for _, c := range newClients(b, urls) {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	name := "redsync"
	if failFast {
		name += " FailFast"
	}
	return locker{name, func(ctx context.Context, resource string) (func() error, error) {
		m := rs.NewMutex("redsync:"+resource, redsync.WithExpiry(ttl), redsync.WithFailFast(failFast))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			ok, err := m.UnlockContext(ctx)
			if !ok && err == nil {
				err = errors.New("not unlocked")
			}
			return err
		}, nil
	}}
}

var deleteIfOurs = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// newPlain is the quorum that one writes in an afternoon: a goroutine per node, decided by the first three.
func newPlain(b testing.TB, urls []string) locker {
	cs := newClients(b, urls)
	quorum := len(cs)/2 + 1
	ask := func(f func(*redis.Client) bool) error {
		votes := make(chan bool, len(cs))
		for _, c := range cs {
			go func() { votes <- f(c) }()
		}
		yes, no := 0, 0
		for yes < quorum {
			if <-votes {
				yes++
			} else if no++; no > len(cs)-quorum {
				return errors.New("no quorum")
			}
		}
		return nil
	}
	return locker{"plain go-redis", func(ctx context.Context, resource string) (func() error, error) {
		var raw [16]byte
		_, _ = rand.Read(raw[:])
		// A key of its own for every lock: here nothing keeps a late SET from following its own DEL.
		token := hex.EncodeToString(raw[:])
		key := "plain:" + resource + ":" + token
		if err := ask(func(c *redis.Client) bool { return c.SetNX(ctx, key, token, ttl).Val() }); err != nil {
			return nil, err
		}
		return func() error {
			return ask(func(c *redis.Client) bool {
				return deleteIfOurs.Run(ctx, c, []string{key}, token).Err() == nil
			})
		}, nil
	}}
}

type redsyncPool = redsyncredis.Pool

package fenced_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/fenced"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

var bg = context.Background()

// store is what both recipes can do, with a number as the value.
type store interface {
	claim(fence uint64) (int64, error)
	write(fence uint64, value int64) error
}

type records struct{ fenced.Records }

func (r records) claim(fence uint64) (int64, error) {
	text, err := r.Claim(bg, "k", fence)
	value, _ := strconv.ParseInt(text, 10, 64)
	return value, err
}

func (r records) write(fence uint64, value int64) error {
	return r.Write(bg, "k", fence, strconv.FormatInt(value, 10))
}

type accounts struct{ fenced.Accounts }

func (a accounts) claim(fence uint64) (int64, error)     { return a.Claim(bg, "k", fence) }
func (a accounts) write(fence uint64, value int64) error { return a.SetBalance(bg, "k", fence, value) }

// stores runs a claim on each recipe, empty at first.
func stores(t *testing.T, claim func(t *testing.T, s store)) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		t.Run(string(p), func(t *testing.T) {
			claim(t, records{fenced.Records{Client: servers.Start(t, 1, servers.WithProvider(p)).Server(0).Client()}})
		})
	}
	t.Run("sqlite", func(t *testing.T) { claim(t, accounts{ledger(t)}) })
}

// ledger is on disk, with several connections, as if several processes used it.
func ledger(t *testing.T) fenced.Accounts {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger.db")
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.ExecContext(bg, fenced.Schema)
	require.NoError(t, err)
	return fenced.Accounts{DB: db}
}

const small, large = uint64(1_700_000_000_000_000), uint64(9e15)

func TestEqualAndHigherFencesMayWrite(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		for i, fence := range []uint64{1, 1, 9, 10, small, small, small + 1, large - 1, large, large} {
			before, err := s.claim(fence)
			require.NoError(t, err)
			require.Equal(t, int64(i), before)
			require.NoError(t, s.write(fence, int64(i+1)))
		}
	})
}

func TestLowerFencesAreRefusedAndChangeNothing(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		for i, fence := range []uint64{10, small, large} {
			_, err := s.claim(fence)
			require.NoError(t, err)
			require.NoError(t, s.write(fence, int64(i)))
			for _, old := range []uint64{1, 9, fence - 1} {
				_, err := s.claim(old)
				require.ErrorIs(t, err, fenced.ErrStale)
				require.ErrorIs(t, s.write(old, 666), fenced.ErrStale)
			}
			now, err := s.claim(fence)
			require.NoError(t, err)
			require.Equal(t, int64(i), now)
		}
	})
}

// The gap that the claim closes: the new owner has read, and not written yet.
func TestAnOldOwnerIsRefusedAsSoonAsTheNewOneHasClaimed(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		_, err := s.claim(small)
		require.NoError(t, err)
		require.NoError(t, s.write(small, 100))
		read, err := s.claim(small + 1)
		require.NoError(t, err)
		require.ErrorIs(t, s.write(small, 50), fenced.ErrStale)
		require.NoError(t, s.write(small+1, read+1))
		now, err := s.claim(small + 1)
		require.NoError(t, err)
		require.Equal(t, int64(101), now)
	})
}

func TestNumbersThatAreNoFencesAreRefused(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		for _, fence := range []uint64{0, large + 1, 1 << 63, 1<<64 - 1} {
			_, err := s.claim(fence)
			require.ErrorContains(t, err, "not the fence of a lock")
			require.ErrorContains(t, s.write(fence, 1), "not the fence of a lock")
		}
		_, err := s.claim(1)
		require.NoError(t, err, "nobody is locked out")
	})
}

func TestAWriteWithoutAClaimWritesNothing(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		require.Error(t, s.write(small, 1))
		before, err := s.claim(1)
		require.NoError(t, err)
		require.Zero(t, before)
	})
}

// Old owners that go on writing while later ones claim and write: what a claim has read is still there at the write.
func TestNoWriteIsLostBehindAClaim(t *testing.T) {
	stores(t, func(t *testing.T, s store) {
		var mu sync.Mutex // stands for the lock: one owner at a time, as far as the owners know
		fence := small
		var owners sync.WaitGroup
		for range 4 {
			owners.Go(func() {
				for range 25 {
					mu.Lock()
					fence++
					mine := fence
					before, err := s.claim(mine)
					if err == nil {
						err = s.write(mine, before+1)
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if err := s.write(mine-1-rand.Uint64N(3), -1); err == nil {
						t.Error("a late write was taken")
					}
				}
			})
		}
		owners.Wait()
		now, err := s.claim(fence)
		require.NoError(t, err)
		require.Equal(t, int64(100), now)
	})
}

func TestARefusedPaymentLeavesNothing(t *testing.T) {
	a := ledger(t)
	_, err := a.Claim(bg, "42", 7)
	require.NoError(t, err)
	require.NoError(t, a.Post(bg, "42", 7, "p1", 100))
	require.ErrorIs(t, a.Post(bg, "42", 6, "p2", 100), fenced.ErrStale)
	require.ErrorIs(t, a.Post(bg, "no such account", 7, "p3", 100), fenced.ErrStale)
	require.Error(t, a.Post(bg, "42", 7, "p1", 100), "the payment's key, not the fence, stops a repetition")
	require.Equal(t, "[p1 42 100]", entries(t, a))
	balance, err := a.Claim(bg, "42", 7)
	require.NoError(t, err)
	require.Equal(t, int64(100), balance)
}

func entries(t *testing.T, a fenced.Accounts) (all string) {
	t.Helper()
	rows, err := a.DB.QueryContext(bg, `SELECT id, account, cents FROM entry ORDER BY id`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, account string
		var cents int64
		require.NoError(t, rows.Scan(&id, &account, &cents))
		all += fmt.Sprint([]any{id, account, cents})
	}
	require.NoError(t, rows.Err())
	return all
}

func TestForeignDataUnderARecordStays(t *testing.T) {
	c := servers.Start(t, 1).Server(0).Client()
	require.NoError(t, c.Set(bg, "k", "v", 0).Err())
	_, err := records{fenced.Records{Client: c}}.claim(small)
	require.True(t, redis.HasErrorPrefix(err, "WRONGTYPE"), err)
	require.NotErrorIs(t, err, fenced.ErrStale)
	require.Equal(t, "v", c.Get(bg, "k").Val())
}

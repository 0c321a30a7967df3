package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

func TestALostReplyCountsAsOurs(t *testing.T) { // FAULTS 10
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls)
		warm(t, p)
		for _, proxy := range proxies {
			proxy.DropReplies(1)
		}
		l, err := p.TryLock(bg, "a")
		require.NoError(t, err)
		r.owned(l, 5, nodeTimeout+slack)
		reconnects := uint64(0)
		for _, n := range p.Stats().Nodes {
			reconnects += n.Reconnects
		}
		require.GreaterOrEqual(t, reconnects, uint64(3), "the replies were lost")
		require.NoError(t, l.Unlock(bg))
	})
}

func TestARequestThatLandsLateIsUndone(t *testing.T) { // FAULTS 11
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls)
		warm(t, p)
		for _, i := range majority {
			proxies[i].Freeze()
		}
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		before := r.sets(0)
		for _, i := range majority {
			require.NotZero(t, proxies[i].Pending(), "it is on its way")
			proxies[i].Thaw()
		}
		if r.Provider() != servers.Embedded {
			eventually(t, time.Second, "it landed", func() error { return is(r.sets(0) > before) })
		}
		r.gone()
	})
}

// sets counts the SET commands that a server has executed, in scripts too.
func (r *rig) sets(i int) int { return r.calls(i, "set") }

// calls counts the executions of a command.
func (r *rig) calls(i int, command string) int {
	info := r.Server(i).Client().Info(bg, "commandstats").Val()
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(number)
	return n
}

func TestARequestThatLandsAfterItsSecondWritesNothing(t *testing.T) { // FAULTS 7, 53
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls)
		warm(t, p)
		for _, proxy := range proxies {
			proxy.Freeze()
		}
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Error(t, p.Close(), "nobody is left to undo anything")

		// The last second is that of the node timeout's end, and one more.
		latest := r.Server(0).Client().Time(bg).Val().Unix() + 2
		eventually(t, patience, "the servers' clocks are past it", func() error {
			for i := range r.Len() {
				if r.Server(i).Client().Time(bg).Val().Unix() <= latest {
					return errNotYet
				}
			}
			return nil
		})
		for _, proxy := range proxies {
			require.NotZero(t, proxy.Pending())
			proxy.Thaw()
		}
		throughout(t, nodeTimeout, func() error { return none(r.keys()) })
		for _, proxy := range proxies {
			require.Zero(t, proxy.Pending())
		}
	})
}

func TestALoserLeavesNothingOnASlowThirdNode(t *testing.T) { // FAULTS 13
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls[:3])
		warm(t, p)
		for i := range 2 {
			require.NoError(t, r.Server(i).Client().Set(bg, "lock:a", "another's", 0).Err())
		}
		proxies[2].Delay(150 * time.Millisecond)
		start := time.Now()
		_, err := p.TryLock(bg, "a")
		require.Less(t, time.Since(start), 150*time.Millisecond, "it does not wait for the third")
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.Contains(t, err.Error(), "without expiry")
		eventually(t, nodeTimeout+slack, "no key of the loser", func() error {
			return none(r.keysOn(2))
		})
		for i := range 2 {
			require.Equal(t, "another's", r.Server(i).Client().Get(bg, "lock:a").Val())
			require.NoError(t, r.Server(i).Client().Del(bg, "lock:a").Err())
		}
	})
}

func TestUnlockIsBoundedAndFinishedLater(t *testing.T) { // FAULTS 14
	type fault struct{ begin, end func(r *rig) }
	for name, unreachable := range map[string]fault{
		"frozen": {
			func(r *rig) { r.freeze(all...) },
			func(r *rig) { r.thaw(all...) },
		},
		"refused": {
			func(r *rig) {
				for _, p := range r.proxies {
					_ = p.Refuse(true)
				}
			},
			func(r *rig) {
				for _, p := range r.proxies {
					require.NoError(r.t, p.Refuse(false))
				}
			},
		},
		"disconnected": {
			func(r *rig) { r.each(all, (*servers.Server).Disconnect) },
			func(r *rig) { r.each(all, (*servers.Server).Reconnect) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, r *rig) {
				if name == "disconnected" && !r.Server(0).CanDisconnect() {
					t.Skip("needs servers with a network of their own")
				}
				urls := r.URLs()
				if name == "refused" {
					_, urls = r.behindProxies()
				}
				p := r.poolOf(urls)
				warm(t, p)
				l := mustLock(t, p)
				r.owned(l, 5, nodeTimeout)
				unreachable.begin(r)
				var err error
				within(t, nodeTimeout, "Unlock", func() { err = l.Unlock(bg) })
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.Len(t, reasons(t, err), 5)
				require.ErrorIs(t, l.Err(), redlock.ErrUnlocked)
				unreachable.end(r)
				r.gone()
				require.NoError(t, l.Unlock(bg), "a failed Unlock asks again")
			})
		})
	}
}

func TestALostReplyToTheReleaseIsAskedAgain(t *testing.T) { // FAULTS 15
	onEvery(t, func(t *testing.T, r *rig) {
		proxies, urls := r.behindProxies()
		p := r.poolOf(urls)
		warm(t, p)
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		for _, proxy := range proxies {
			proxy.DropReplies(1)
		}
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, l.Unlock(bg))
		eventually(t, nodeTimeout+slack, "no key", func() error { return none(r.keys()) })
	})
}

func TestUnlockRacingARenewalLeavesNothing(t *testing.T) { // FAULTS 16
	onEvery(t, func(t *testing.T, r *rig) {
		workers, n, ttl := 20, 500, 40*time.Millisecond
		if r.Provider() == servers.Embedded { // its scripts take their time
			workers, n, ttl = 5, 100, 200*time.Millisecond
		}
		p := r.pool(redlock.WithTTL(ttl), redlock.WithRetry(time.Millisecond, 10*time.Millisecond))
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range n {
					l, err := p.Lock(bg, fmt.Sprint("r", w))
					if err != nil {
						t.Error(err)
						return
					}
					var extend sync.WaitGroup
					if i%3 == 0 {
						extend.Go(func() { _ = l.Extend(bg) })
					}
					if i%20 == 0 { // to where the watchdog renews
						<-time.After(rand.N(ttl / 2))
					}
					_ = l.Unlock(bg) // so short a TTL may be over
					extend.Wait()
				}
			})
		}
		wg.Wait()
		t.Logf("%d renewals in %d locks", p.Stats().Renewed, p.Stats().Acquired)
		require.NotZero(t, p.Stats().Renewed)
		r.gone()
		throughout(t, nodeTimeout, func() error { return none(r.keys()) })
		eventually(t, undoBound, "nothing is left to undo", func() error {
			for _, node := range p.Stats().Nodes {
				if node.UndoPending > 0 {
					return fmt.Errorf("%s: %d", node.Node, node.UndoPending)
				}
			}
			return nil
		})
	})
}

func TestUnlockWithADeadCtx(t *testing.T) { // FAULTS 12, 17
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool()
		warm(t, p)
		ctx, cancel := context.WithCancel(bg)
		l, err := p.Lock(ctx, "a")
		require.NoError(t, err)
		r.owned(l, 5, nodeTimeout)
		cancel()
		require.NoError(t, l.Context().Err(), "the lock does not end with the call's ctx")
		require.NoError(t, l.Unlock(ctx))
		eventually(t, slack, "no key", func() error { return none(r.keys()) })
	})
}

func TestAfterTheEnd(t *testing.T) { // FAULTS 18
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool()
		l := mustLock(t, p)
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, l.Unlock(bg))
		eventually(t, slack, "no key", func() error { return none(r.keys()) })
		before := p.Stats().Renewed + p.Stats().RenewalsFailed
		require.ErrorIs(t, l.Extend(bg), redlock.ErrUnlocked)
		require.Equal(t, before, p.Stats().Renewed+p.Stats().RenewalsFailed, "nothing was asked")
		require.Empty(t, r.keys())

		l = mustLock(t, p, redlock.WithLease(300*time.Millisecond))
		late := awaitLoss(t, l)
		require.Less(t, late, slack)
		require.ErrorIs(t, l.Unlock(bg), redlock.ErrLost)
		require.ErrorIs(t, l.Unlock(bg), redlock.ErrLost)
		require.ErrorIs(t, l.Extend(bg), redlock.ErrLost)
		require.Zero(t, l.Margin())
		require.NotErrorIs(t, l.Err(), redlock.ErrNoQuorum)
		require.NotErrorIs(t, l.Err(), redlock.ErrHeld)
	})
}

func TestAReplayedRequestGivesNobodyTheLock(t *testing.T) { // FAULTS 53
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 2 * time.Second
		tapes, urls := r.behindTapes()
		p, rival := r.poolOf(urls, redlock.WithTTL(ttl)), r.pool(redlock.WithTTL(ttl))
		warm(t, p)
		warm(t, rival)
		// replay sends again what was sent for a token, or only what may create a key, and returns the replies.
		replay := func(token string, creating bool) (replies []any) {
			for i, tape := range tapes {
				for _, call := range tape.of(token) {
					if creates(call) || !creating {
						reply, err := r.Server(i).Client().Do(bg, call...).Result()
						require.NoError(t, err)
						replies = append(replies, reply)
					}
				}
			}
			require.GreaterOrEqual(t, len(replies), 5)
			return replies
		}

		// 1. Doubled while it is held: nothing changes.
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		replay(l.Token(), true)
		require.Equal(t, 5, r.owners("lock:a", l.Token()))
		require.True(t, l.Valid())
		require.NoError(t, l.Unlock(bg))

		// 2. While another holds it: the other's keys stand.
		other, err := rival.Lock(bg, "a")
		require.NoError(t, err)
		r.owned(other, 5, nodeTimeout)
		replay(l.Token(), false)
		require.Equal(t, 5, r.owners("lock:a", other.Token()))
		require.True(t, other.Valid())
		require.NoError(t, other.Unlock(bg))

		// 3. On free nodes, in time: the keys that it revives are nobody's, and run out.
		l = mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		require.NoError(t, l.Unlock(bg))
		eventually(t, slack, "all are free", func() error { return none(r.keys()) })
		require.True(t, slices.ContainsFunc(replay(l.Token(), true), granted))
		require.NotEmpty(t, r.keys())
		require.False(t, l.Valid())
		require.ErrorIs(t, l.Extend(bg), redlock.ErrUnlocked)
		eventually(t, ttl+slack, "what the replay revived has run out", func() error { return none(r.keys()) })

		// 4. On free nodes, after its last second: nothing is written.
		call := tapes[0].of(l.Token())[0]
		require.True(t, creates(call))
		eventually(t, patience, "its last second is over", func() error {
			return is(r.Server(0).Client().Time(bg).Val().Unix() > lastSecond(call)+1) // whatever the clocks differ
		})
		for _, reply := range replay(l.Token(), true) {
			require.Equal(t, int64(-1), reply)
		}
		require.Empty(t, r.keys())
		again, err := rival.TryLock(bg, "a")
		require.NoError(t, err)
		require.NoError(t, again.Unlock(bg))
	})
}

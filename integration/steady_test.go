package integration_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// A holds 1, 2 and 3, and 3 forgets. The rival asks 3, 4 and 5, so all hangs on 3.
func TestAServerThatForgotLetsNoRivalIn(t *testing.T) { // FAULTS 31
	offContainers(t, func(t *testing.T, r *rig) {
		for name, forget := range map[string]func(s *servers.Server){
			"restart": (*servers.Server).Restart,
			"flush":   func(s *servers.Server) { require.NoError(t, s.Client().FlushAll(bg).Err()) },
		} {
			ps := r.ready(2)
			for _, i := range minority {
				require.NoError(t, r.Server(i).Client().Set(bg, "lock:a", "another's", 0).Err())
			}
			// A lease is topped up once and never again: it stays where it is.
			l := mustLock(t, ps[0], redlock.WithLease(guard))
			eventually(t, patience, "it is topped up, in vain", func() error { return is(ps[0].Stats().Nodes[4].Requests > 0 && l.Margin() == 0) })
			r.owned(l, 3, slack)
			for _, i := range minority {
				require.NoError(t, r.Server(i).Client().Del(bg, "lock:a").Err())
			}
			r.freeze(0, 1)
			began := time.Now()
			forget(r.Server(2))

			require.ErrorContains(t, refused(t, ps[1]), "no vote for ", name)
			next, err := ps[1].Lock(bg, "a")
			got := time.Now()
			require.NoError(t, err)
			require.False(t, l.Valid(), name)
			require.GreaterOrEqual(t, got.Sub(began), guard, "%s: server 2 voted too soon", name)
			require.Greater(t, next.Fence(), l.Fence())
			r.thaw(0, 1)
			require.NoError(t, next.Unlock(bg))
		}
	})
}

func TestARollingRestartSlowerThanTheGuardLosesNothing(t *testing.T) { // FAULTS 25
	onProcesses(t, func(t *testing.T, r *rig) {
		ps := r.ready(2)
		l := mustLock(t, ps[0])
		for i := range r.Len() {
			eventually(t, patience, "the lock is on all", func() error { return is(l.Margin() == 2) })
			r.forgets(i, (*servers.Server).Restart, func() {
				_, err := ps[1].TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.NoError(t, l.Err())
			})
		}
		eventually(t, patience, "the lock is on all", func() error { return is(l.Margin() == 2) })
		require.NoError(t, l.Unlock(bg))
		next := mustLock(t, ps[1])
		require.Greater(t, next.Fence(), l.Fence())
		require.NoError(t, next.Unlock(bg))
	})
}

// All that the server answered is there again after a kill, so nothing but its run id tells that it was away. Of the two
// batches, the second is sent on what go-redis would take for the same connection.
func TestTheFirstBatchAfterARestartFromAnAOFHasNoVote(t *testing.T) { // FAULTS 58
	onProcesses(t, func(t *testing.T, r *rig) {
		own := rigOn(t, servers.Start(t, 5, servers.WithProvider(r.Provider()), servers.WithAOF(),
			servers.WithArgs("--appendfsync", "everysec")))
		ps := own.ready(1)
		p := ps[0]
		own.votesWithout(p)
		own.freeze(minority...)
		own.votesWithout(p, minority...)

		began := time.Now()
		own.Server(0).RestartKeeping()
		require.Contains(t, reasons(t, refused(t, p))[own.Server(0).Addr()], "no vote for ")
		require.Empty(t, own.keysOn(0), "nothing is written")
		own.heals(0, began, func() {
			if l, err := p.TryLock(bg, "a"); err == nil {
				require.GreaterOrEqual(t, time.Since(began), guard)
				require.NoError(t, l.Unlock(bg))
			}
		})
		own.votesWithout(p, minority...)
	})
}

// In the snapshot a lock is held that was released since, one is missing that is held, and the counters are low.
func TestAnOldSnapshotIsSeenByItsMarker(t *testing.T) { // FAULTS 52
	onProcesses(t, func(t *testing.T, r *rig) {
		own := rigOn(t, servers.Start(t, 5, servers.WithProvider(r.Provider()), servers.WithRDB()))
		p := own.ready(1)[0]
		s := own.Server(0)
		fields := func() map[string]string { return s.Client().HGetAll(bg, "lock:"+stateKey).Val() }
		old := mustLock(t, p)
		own.owned(old, 5, slack)
		require.NoError(t, s.Client().Save(bg).Err())
		snapshot := fields()
		require.NoError(t, old.Unlock(bg))
		held, err := p.Lock(bg, "b")
		require.NoError(t, err)
		var last uint64
		for range 10 {
			l := mustLock(t, p)
			require.Greater(t, l.Fence(), last)
			last = l.Fence()
			require.NoError(t, l.Unlock(bg))
		}
		var high map[string]string
		eventually(t, patience, "it has stored later fences", func() error { // a busy server may miss locks that are given back at once
			require.NoError(t, mustLock(t, p).Unlock(bg))
			high = fields()
			return is(high["marker"] == snapshot["marker"] && !maps.Equal(high, snapshot))
		})

		began := time.Now()
		s.RestartKeeping()
		if r.Provider() == servers.Processes { // a container may be away for longer than the TTL
			require.Equal(t, old.Token(), s.Client().Get(bg, "lock:a").Val(), "it is back")
		}
		require.NotEqual(t, high, snapshot)
		next := mustLock(t, p)
		require.Greater(t, next.Fence(), last, "four others know better")
		require.NoError(t, next.Unlock(bg))
		own.heals(0, began, func() { require.NoError(t, held.Err()) })
		require.Zero(t, s.Client().Exists(bg, "lock:a").Val(), "the revived key died by its TTL")
		for stripe, counter := range high {
			if stripe != "marker" {
				require.GreaterOrEqual(t, fields()[stripe], counter, "healed with the others' counters")
			}
		}
		own.owned(held, 5, nodeTimeout+guardTTL/3+slack)
		require.NoError(t, held.Unlock(bg))
	})
}

// Scripts survive FLUSHALL: that tells it from a start of new servers.
func TestAFlushIsNotAFirstUse(t *testing.T) { // FAULTS 59
	offContainers(t, func(t *testing.T, r *rig) {
		for _, flushed := range [][]int{majority, all} {
			ps := r.ready(2)
			l := mustLock(t, ps[0])
			r.owned(l, 5, slack)
			began := time.Now()
			r.each(flushed, func(s *servers.Server) { require.NoError(t, s.Client().FlushAll(bg).Err()) })
			require.ErrorContains(t, refused(t, ps[1]), "no vote for ")
			require.Error(t, refused(t, r.guarded()), "a pool that has not been there before")
			next, err := r.guarded().Lock(bg, "a")
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), guard, "%v", flushed)
			require.False(t, l.Valid(), "%v", flushed)
			require.NoError(t, next.Unlock(bg))
		}
	})
}

// A on all; 4 and 5 fall silent and 3 forgets: what it is given back there is no vote. The rival tries all the time.
func TestARefilledServerKeepsNoLockAlive(t *testing.T) { // FAULTS 61
	offContainers(t, func(t *testing.T, r *rig) {
		ps := r.ready(2)
		l := mustLock(t, ps[0])
		r.owned(l, 5, slack)
		r.freeze(minority...)
		began := time.Now()
		r.Server(2).Restart()
		eventually(t, guardTTL, "it is refilled", func() error {
			return is(r.Server(2).Client().Get(bg, "lock:a").Val() == l.Token())
		})
		r.freeze(0)
		for l.Valid() {
			_, err := ps[1].TryLock(bg, "a")
			require.Error(t, err)
			require.Less(t, time.Since(began), guardTTL+slack, "only two servers that remember it ever confirmed it")
		}
		<-l.Lost()
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.ErrorIs(t, l.Err(), redlock.ErrNoQuorum)
		require.ErrorContains(t, l.Err(), "no vote for ")
		r.thaw(0, 3, 4)
	})
}

// Just when its guard is over: the marker is written or not, and what its AOF has of it is of another run anyway.
func TestAServerKilledWhileItIsHealedWaitsAgain(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		own := rigOn(t, servers.Start(t, 5, servers.WithProvider(r.Provider()), servers.WithAOF()))
		p := own.ready(1)[0]
		killed := []int{0, 1, 2, 3}
		for _, i := range killed {
			require.NoError(t, own.Server(i).Client().FlushAll(bg).Err())
		}
		began := time.Now()
		refused(t, p)
		eventually(t, healing, "the first is about to be healed", func() error { return is(time.Since(began) >= guardOver) })
		for _, i := range killed {
			own.Server(i).Kill()
		}
		began = time.Now()
		own.each(killed, (*servers.Server).RestartKeeping)
		for _, i := range killed {
			require.False(t, own.steady(i))
		}
		for _, i := range killed {
			own.heals(i, began, nil)
		}
	})
}

// Whoever watches is told nothing of it: what it expects to find when its guard is over is gone.
func TestAnotherFlushBeginsTheGuardAnew(t *testing.T) {
	offContainers(t, func(t *testing.T, r *rig) {
		r.ready(1)
		flush := func(s *servers.Server) { require.NoError(t, s.Client().FlushAll(bg).Err()) }
		flush(r.Server(0))
		eventually(t, patience, "it is asked for", func() error {
			_, _ = r.pools[0].TryLock(bg, "b", redlock.WithLease(guard/10))
			return is(strings.Contains(r.marker(0), " nonce="))
		})
		throughout(t, guard*3/4, func() error { return is(!r.steady(0)) })
		r.forgets(0, flush, nil)
	})
}

func TestScriptFlushDoesNotDisturbAWatch(t *testing.T) {
	offContainers(t, func(t *testing.T, r *rig) {
		p := r.ready(1)[0]
		r.forgets(0, func(s *servers.Server) {
			require.NoError(t, s.Client().FlushAll(bg).Err())
			eventually(t, patience, "it is watched", func() error { return is(r.marker(0) != "" || r.granted(p, "a")[0]) })
		}, func() {
			require.NoError(t, r.Server(0).Client().ScriptFlush(bg).Err())
			if l, err := p.TryLock(bg, "b"); err == nil {
				require.NoError(t, l.Unlock(bg))
			}
		})
		r.votesWithout(p)
	})
}

// SCRIPT FLUSH takes the witness as well, but every client that is there gives it back.
func TestScriptFlushThenFlushIsNotAFirstUse(t *testing.T) {
	offContainers(t, func(t *testing.T, r *rig) {
		p := r.ready(1)[0]
		l := mustLock(t, p)
		r.each(all, func(s *servers.Server) { require.NoError(t, s.Client().ScriptFlush(bg).Err()) })
		before := p.Stats().Nodes
		eventually(t, guardTTL, "every server was asked for a renewal", func() error {
			for i, n := range p.Stats().Nodes {
				if n.Requests == before[i].Requests {
					return fmt.Errorf("%s was not", n.Node)
				}
			}
			return nil
		})
		r.each(all, func(s *servers.Server) { require.NoError(t, s.Client().FlushAll(bg).Err()) })
		refused(t, r.guarded())
		require.NoError(t, l.Unlock(bg))
	})
}

func TestFreshServersWaitAGuardAndSayHowLong(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		began := time.Now()
		own := rigOn(t, servers.Start(t, 5, servers.WithProvider(r.Provider())))
		up := time.Now()
		p := own.guarded()
		err := refused(t, p)
		require.ErrorContains(t, err, "just been started: no vote for another ")
		require.ErrorContains(t, err, "WithRestartGuard")
		l := mustLock(t, p)
		require.GreaterOrEqual(t, time.Since(began), guard)
		require.Less(t, time.Since(up), healing)
		require.NoError(t, l.Unlock(bg))
	})
}

// Several pools and another process meet servers that were never used, all at once.
func TestFirstUseOfOldServersWaitsForNothing(t *testing.T) {
	offContainers(t, func(t *testing.T, r *rig) {
		r.ready(1) // they have been up for longer than the guard now
		eventually(t, healing, "they are old", func() error { return r.older(guard + 2*time.Second) })
		_ = r.pools[0].Close()
		r.unused()
		t.Setenv(holderGuardEnv, guard.String())
		errs := make(chan error)
		for i := range 4 {
			p := r.guarded()
			go func() {
				l, err := p.TryLock(bg, fmt.Sprint("first", i))
				if err == nil {
					err = l.Unlock(bg)
				}
				errs <- err
			}()
		}
		h := r.holder(r.URLs(), guardTTL)
		for range 4 {
			require.NoError(t, <-errs)
		}
		require.True(t, h.ask("try").Held)
		for i := range r.Len() {
			require.True(t, r.steady(i))
		}
	})
}

// older says whether every server's own word is that it has run for longer than d.
func (r *rig) older(d time.Duration) error {
	for i := range r.Len() {
		up, err := r.Server(i).Client().InfoMap(bg, "server").Result()
		if err != nil {
			return err
		}
		var seconds int
		if _, err := fmt.Sscan(up["Server"]["uptime_in_seconds"], &seconds); err != nil {
			return err
		}
		if time.Duration(seconds)*time.Second < d {
			return fmt.Errorf("server %d has run for %d s", i, seconds)
		}
	}
	return nil
}

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// What docs/operations.md tells operators to do, or promises them.

func TestSettingsAreChangedByDeletingTheMarkers(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		old := r.allSteady()
		l := mustLock(t, old)
		before := l.Fence()
		require.NoError(t, l.Unlock(bg))
		require.NoError(t, old.Close())

		// 1. Another guard is refused, with both named.
		const longer = 2 * shortGuard
		p := r.pool(redlock.WithTTL(longer), redlock.WithRestartGuard(longer), redlock.WithQuorum(redlock.AtLeast(4)))
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorContains(t, err, "n=5 k=3 guard=1000 ")
		require.ErrorContains(t, err, "n=5 k=4 guard=2000 ")

		// 2. All clients are stopped, the markers deleted: nobody has a vote for the new guard, and fences go on.
		var counters int64
		for i := range r.Len() {
			c := r.Server(i).Client()
			require.EqualValues(t, 1, c.HDel(bg, "lock:"+stateKey, "marker").Val())
			counters += c.HLen(bg, "lock:"+stateKey).Val()
		}
		require.NotZero(t, counters)
		began := time.Now()
		l, err = p.Lock(bg, "a")
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), longer)
		require.Greater(t, l.Fence(), before)
		require.NoError(t, l.Unlock(bg))
		r.awaitSteady(p, all...)
		_, err = r.pool(redlock.WithTTL(shortGuard), redlock.WithRestartGuard(shortGuard)).TryLock(bg, "a")
		require.ErrorContains(t, err, "n=5 k=4 guard=2000 ", "the old settings are refused now")
	})
}

func TestAPoolIsOneConnectionToEachServer(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		connected := func(i int) (n int) {
			for line := range strings.Lines(r.Server(i).Client().ClientList(bg).Val()) {
				if !strings.Contains(line, "cmd=client") { // the one who asks
					n++
				}
			}
			return n
		}
		before := connected(0)
		for k := range 3 {
			p := r.allSteady()
			for i := range 50 {
				l, err := p.TryLock(bg, fmt.Sprint("r", k, "-", i))
				require.NoError(t, err)
				defer func() { _ = l.Unlock(bg) }()
			}
			require.Equal(t, before+k+1, connected(0))
		}
	})
}

func TestIdleConnectionsOutliveAServersTimeout(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		short := setting("", "timeout", "3", "0")
		for _, i := range all {
			short.begin(r, r.Server(i))
			defer short.end(r, r.Server(i))
		}
		p := r.pool() // without a guard it is the reading of the clock alone that keeps them busy
		warm(t, p)
		before := p.Stats().Nodes
		<-time.After(6 * time.Second)
		for i, n := range p.Stats().Nodes {
			require.Equal(t, before[i].Reconnects, n.Reconnects)
			require.True(t, n.Connected)
		}
	})
}

func TestADatabaseAndAClientNameNeedARightMore(t *testing.T) { // FAULTS 38
	onProcesses(t, func(t *testing.T, r *rig) {
		r.leastUser(leastCommands)
		for right, options := range map[string]redis.Options{
			"+select": {DB: 1}, "+client|setname": {ClientName: "payments"},
		} {
			r.grant(leastCommands)
			clients := r.clients(func(int) redis.Options {
				o := options
				o.Username, o.Password = "redlock", leastPassword
				return o
			})
			p := r.poolOn(clients)
			_, err := p.TryLock(bg, "a")
			require.ErrorContains(t, err, "NOPERM", right)
			r.grant(leastCommands + " " + right)
			warm(t, p)
		}
	})
}

package integration_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// The first pool's settings are in the markers; those who come later and have others are told both.
func TestOtherSettingsAreRefusedAndBothNamed(t *testing.T) { // FAULTS 56, 57
	onEvery(t, func(t *testing.T, r *rig) {
		first := r.ready(1)[0]
		for name, row := range map[string]struct {
			urls []string
			opts []redlock.Option
			want string
		}{
			"another N":     {r.URLs()[:3], nil, "n=3 k=2 guard=1000"},
			"another K":     {r.URLs(), []redlock.Option{redlock.WithQuorum(redlock.AtLeast(4))}, "n=5 k=4 guard=1000"},
			"another guard": {r.URLs(), []redlock.Option{redlock.WithTTL(time.Minute), redlock.WithRestartGuard(time.Minute)}, "n=5 k=3 guard=60000"},
		} {
			other := r.guardedOf(row.urls, row.opts...)
			err := refused(t, other)
			require.ErrorContains(t, err, "n=5 k=3 guard=1000", name)
			require.ErrorContains(t, err, row.want, name)
			require.ErrorContains(t, err, "for all clients", name)
			l := mustLock(t, first)
			require.NoError(t, l.Unlock(bg))
		}

		_, err := redlock.Open(r.URLs(), redlock.WithTTL(2*guard), redlock.WithRestartGuard(guard))
		require.ErrorContains(t, err, fmt.Sprintf("WithRestartGuard(%v)", 2*guard))
		_, err = first.TryLock(bg, "a", redlock.WithTTL(2*guard))
		require.ErrorContains(t, err, "more than the restart guard of "+guard.String())
		for i := range r.Len() {
			require.True(t, r.steady(i), "the refused have changed nothing")
		}
	})
}

// Three names of one server: with two others they would be five nodes, and a majority by themselves.
func TestOneServerByThreeNamesHasNoVote(t *testing.T) { // FAULTS 33
	onProcesses(t, func(t *testing.T, r *rig) {
		own := rigOn(t, servers.Start(t, 3, servers.WithProvider(servers.Processes), servers.WithUnixSocket()))
		at, err := url.Parse(own.Server(0).URL())
		require.NoError(t, err)
		socket, err := url.Parse(own.Server(0).SocketURL())
		require.NoError(t, err)
		names := []string{"localhost:" + at.Port(), "127.0.0.1:" + at.Port(), socket.Path}
		p := own.guardedOf([]string{"redis://" + names[0], "redis://" + names[1], "unix://" + socket.Path,
			own.Server(1).URL(), own.Server(2).URL()})

		// One of them has no twin until the others are connected, and each is looked at once its guard is over.
		throughout(t, guardOver, func() error {
			refused(t, p)
			return none(own.keys())
		})
		eventually(t, patience, "each is refused, and names another", func() error {
			why := reasons(t, refused(t, p))
			for i, name := range names {
				if got := why[name]; !strings.Contains(got, "one server must not vote twice") ||
					!strings.Contains(got, names[(i+1)%3]) && !strings.Contains(got, names[(i+2)%3]) {
					return fmt.Errorf("%s: %q", name, got)
				}
			}
			return nil
		})
		eventually(t, nodeTimeout+slack, "what the two others granted is undone", func() error { return none(own.keys()) })
	})
}

// What no server of a pool may be, from the start: one of each, with two good ones.
func TestServersThatMustNotVoteAreRefused(t *testing.T) { // FAULTS 63
	onProcesses(t, func(t *testing.T, r *rig) {
		good := r.URLs()[:2]
		one := func(args ...string) *servers.Server {
			return servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithArgs(args...)).Server(0)
		}
		bad := []*servers.Server{
			one("--maxmemory", "50mb", "--maxmemory-policy", "volatile-lru"),
			one("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"),
			one("--replicaof", "127.0.0.1", "1"),
		}
		p := r.guardedOf(append(good, bad[0].URL(), bad[1].URL(), bad[2].URL()))
		eventually(t, patience, "each is refused for its own reason", func() error {
			why := reasons(t, refused(t, p))
			for i, want := range []string{"maxmemory-policy noeviction", "cluster-enabled no", "not a master"} {
				if got := why[bad[i].Addr()]; !strings.Contains(got, want) {
					return fmt.Errorf("%q does not contain %q", got, want)
				}
			}
			return nil
		})
		require.NoError(t, bad[0].Client().ConfigSet(bg, "maxmemory-policy", "noeviction").Err())
		eventually(t, healing+time.Second, "the repaired one has a vote", func() error { return is(p.Stats().Nodes[2].Steady) })
	})
}

// An operator makes one server evict and another a replica, while a lock is held: both are found, the lock is kept.
func TestServersThatMustNoLongerVoteAreFound(t *testing.T) { // FAULTS 63
	onProcesses(t, func(t *testing.T, r *rig) {
		p := r.ready(1)[0]
		l := mustLock(t, p)
		r.owned(l, 5, slack)
		evicts, replica := r.Server(0).Client(), r.Server(1).Client()
		t.Cleanup(func() {
			_ = evicts.ConfigSet(bg, "maxmemory", "0").Err()
			_ = replica.ReplicaOf(bg, "no", "one").Err()
		})
		require.NoError(t, evicts.ConfigSet(bg, "maxmemory-policy", "volatile-lru").Err())
		require.NoError(t, evicts.ConfigSet(bg, "maxmemory", "50mb").Err())
		require.NoError(t, replica.ConfigSet(bg, "replica-read-only", "no").Err(), "so that it would vote")
		require.NoError(t, replica.ReplicaOf(bg, "127.0.0.1", "1").Err())
		// A look is due every ten seconds, and with each new connection.
		for _, s := range []*redis.Client{evicts, replica} {
			require.NoError(t, s.ClientKillByFilter(bg, "type", "normal").Err())
		}
		eventually(t, healing, "both are found", func() error {
			why := novote(p)
			return is(strings.Contains(why[0], "maxmemory-policy noeviction") && strings.Contains(why[1], "not a master"))
		})
		r.votesWithout(p, 0, 1)
		require.NoError(t, l.Err())

		require.NoError(t, evicts.ConfigSet(bg, "maxmemory", "0").Err())
		require.NoError(t, replica.ReplicaOf(bg, "no", "one").Err())
		eventually(t, 3*time.Second, "both have a vote again", func() error { return allSteady(p) })
		require.NoError(t, l.Unlock(bg))
	})
}

func TestAUserWhoMayNotCallInfoIsToldWhatToGrant(t *testing.T) {
	onProcesses(t, func(t *testing.T, r *rig) {
		r.unused()
		var urls []string
		for i := range r.Len() {
			c := r.Server(i).Client()
			require.NoError(t, c.Do(bg, "acl", "setuser", "locker", "on", ">secret", "~*", "&*", "+@all", "-info").Err())
			t.Cleanup(func() { _ = c.Do(bg, "acl", "deluser", "locker").Err() })
			urls = append(urls, strings.Replace(r.Server(i).URL(), "redis://", "redis://locker:secret@", 1))
		}
		p := r.guardedOf(urls)
		err := refused(t, p)
		require.ErrorContains(t, err, "+info")
		require.ErrorContains(t, err, "WithRestartGuard(0)")
		require.NotContains(t, err.Error(), "secret")
		l := mustLock(t, r.poolOf(urls), redlock.WithTTL(guardTTL))
		require.NoError(t, l.Unlock(bg), "without a guard it may")

		for i := range r.Len() {
			require.NoError(t, r.Server(i).Client().Do(bg, "acl", "setuser", "locker", "+info").Err())
		}
		eventually(t, healing+time.Second, "granted, it has its votes", func() error { return allSteady(p) })
	})
}

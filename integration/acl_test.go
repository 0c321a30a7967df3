package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// leastCommands are all that the library's user may have to be allowed.
const leastCommands = "+time +info +evalsha +script|load +script|exists +multi +exec " +
	"+get +set +del +pttl +pexpire +hget +hset +hmget " + waitingCommands

// waitingCommands are those of them that only waiting needs: to hear of releases, to tell of them, and for WithFair.
const waitingCommands = "+subscribe +unsubscribe +ping +publish +hgetall +hdel +pexpireat"

// leastKeys and leastChannels are for the default prefix.
const (
	leastKeys     = "~lock:*"
	leastChannels = "&lock:redlock:free:*"
)

const leastPassword = "a-long-random-password"

// grant sets the rights of the user redlock on each server, and nothing else about it.
func (r *rig) grant(commands string) {
	rules := append([]any{"ACL", "SETUSER", "redlock", "reset", "on", ">" + leastPassword, leastKeys, leastChannels}, words(commands)...)
	for i := range r.Len() {
		require.NoError(r.t, r.Server(i).Client().Do(bg, rules...).Err())
	}
}

func words(s string) (ws []any) {
	for _, w := range strings.Fields(s) {
		ws = append(ws, w)
	}
	return ws
}

// leastUser gives each server a user with these rights and returns their URLs.
func (r *rig) leastUser(commands string) (urls []string) {
	r.grant(commands)
	r.last(func() {
		for i := range r.Len() {
			r.Server(i).Client().Do(bg, "ACL", "DELUSER", "redlock")
		}
	})
	for i := range r.Len() {
		urls = append(urls, "redis://redlock:"+leastPassword+"@"+r.Server(i).Addr())
	}
	return urls
}

func TestTheRuleOfTheDocumentsIsTheOneThatIsTested(t *testing.T) { // FAULTS 38
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	require.Contains(t, string(text), "ACL SETUSER redlock reset on >PASSWORD "+leastKeys+" "+leastChannels+" "+leastCommands+"\n")
	require.Contains(t, string(text), "\nuser redlock reset on >PASSWORD "+leastKeys+" "+leastChannels+" "+leastCommands+"\n", "for an ACL file")
}

func TestAUserWithTheLeastRightsCanDoEverything(t *testing.T) { // FAULTS 38
	onProcesses(t, func(t *testing.T, r *rig) {
		own := servers.Start(t, 5, servers.WithProvider(r.Provider())) // for restarts, which forget users
		guarded := &rig{Set: own, t: t}
		urls := guarded.leastUser(leastCommands)
		const ttl = 900 * time.Millisecond
		p := r.poolOf(urls, redlock.WithTTL(ttl), redlock.WithRestartGuard(time.Second))
		rival := r.poolOf(urls, redlock.WithTTL(ttl), redlock.WithRestartGuard(time.Second))
		eventually(t, patience, "the servers are old enough", func() error { return connect(p) })

		// 1. One resource, several, and what is in the way.
		l := mustLock(t, p)
		guarded.owned(l, 5, nodeTimeout+slack)
		_, err := rival.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrHeld)
		many, err := p.TryMultiLock(bg, []string{"b", "c", "d"})
		require.NoError(t, err)
		require.NoError(t, many.Extend(bg))
		_, err = rival.TryMultiLock(bg, []string{"d", "e"})
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NoError(t, many.Unlock(bg))
		renewals(t, p, 2)

		// 2. A lost key is given back.
		require.EqualValues(t, 1, own.Server(1).Client().Del(bg, "lock:a").Val())
		guarded.owned(l, 5, ttl)

		// 3. A frozen majority: the acquire that failed is undone, and forgotten scripts are loaded again.
		guarded.freeze(0, 1, 2)
		_, err = rival.TryLock(bg, "undone")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		guarded.thaw(0, 1, 2)
		eventually(t, undoBound+slack, "it is undone", func() error {
			for i := range own.Len() {
				if own.Server(i).Client().Exists(bg, "lock:undone").Val() != 0 {
					return fmt.Errorf("not on server %d", i)
				}
			}
			return nil
		})
		for i := range own.Len() {
			require.NoError(t, own.Server(i).Client().ScriptFlush(bg).Err())
		}
		_ = l.Unlock(bg) // by now it may have been lost
		l = mustLock(t, p)
		require.NoError(t, l.Extend(bg))

		// 4. A node that comes back empty is healed with the others' counters, and votes again.
		own.Server(0).Restart()
		guarded.grant(leastCommands)
		eventually(t, patience, "it is known to be back", func() error { return is(p.Stats().Nodes[0].NoVote != "") })
		eventually(t, patience, "it is healed", func() error {
			require.NotContains(t, p.Stats().Nodes[0].NoVote, "NOPERM")
			return is(p.Stats().Nodes[0].Steady)
		})
		require.NoError(t, l.Unlock(bg))

		// 5. Those who wait, in order or not, are woken.
		warnings := &recorder{}
		waiting := r.poolOf(urls, redlock.WithTTL(ttl), redlock.WithRestartGuard(time.Second), redlock.WithObserver(warnings.observer()))
		warm(t, waiting)
		for _, opts := range [][]redlock.LockOption{{never}, {never, redlock.WithFair()}} {
			l = mustLock(t, p)
			w := awaits(t, waiting, opts...)
			guarded.eachHears("lock:a")
			require.Less(t, w.takes(l), promptly)
		}
		require.Empty(t, warnings.of("warning"))
		counters := own.Server(0).Client().HLen(bg, "lock:redlock:node").Val()
		require.GreaterOrEqual(t, counters, int64(5), "the marker, and a counter for each of a, b, c, d and warm")
		eventually(t, slack+nodeTimeout, "released", func() error { return none(guarded.keys()) })
		for _, pool := range []*redlock.Pool{p, rival, waiting} {
			_ = pool.Close() // may tell of an undo whose second is not over
		}
	})
}

// deniedByACL knows what a server says, by itself or from within a script. The texts of 6, 7.0 and 7.2 differ.
func deniedByACL(text string) bool {
	for _, word := range []string{"NOPERM", "can't run this command", "ACL failure in script"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func TestEachRightIsNeeded(t *testing.T) { // FAULTS 38
	onProcesses(t, func(t *testing.T, r *rig) {
		urls := r.leastUser(leastCommands)
		for _, right := range append(strings.Fields(strings.TrimSuffix(leastCommands, waitingCommands)), leastKeys) {
			t.Run(right, func(t *testing.T) {
				for i := range r.Len() { // an empty keyspace: the marker has to be written
					require.NoError(t, r.Server(i).Client().FlushAll(bg).Err())
				}
				r.grant(strings.Replace(leastCommands, right, "", 1))
				if right == leastKeys {
					for i := range r.Len() {
						require.NoError(t, r.Server(i).Client().Do(bg, "ACL", "SETUSER", "redlock", "resetkeys", "~other:*").Err())
					}
				}
				p, err := redlock.Open(urls, redlock.WithTTL(time.Second/2), redlock.WithRestartGuard(time.Second/2))
				require.NoError(t, err)
				defer p.Close()
				told := complaint(t, p)
				refused := 0
				for _, why := range told { // some may not have answered when that was decided
					require.NotContains(t, why, leastPassword)
					if deniedByACL(why) {
						refused++
					}
				}
				require.GreaterOrEqual(t, refused, len(majority), "reasons: %q", told)
			})
		}
		r.grant(leastCommands)
		p, err := redlock.Open(urls, redlock.WithTTL(time.Second/2), redlock.WithRestartGuard(time.Second/2))
		require.NoError(t, err)
		eventually(t, patience, "with all of them nothing is refused", func() error {
			return is(len(complaint(t, p)) == 0)
		})
		_ = p.Close()
		for i := range r.Len() {
			require.NoError(t, r.Server(i).Client().FlushAll(bg).Err())
		}
	})
}

// Whoever waits is not failed by what a server refuses, so the servers are asked what they did.
func TestEachRightIsNeededByThoseWhoWait(t *testing.T) { // FAULTS 38
	onProcesses(t, func(t *testing.T, r *rig) {
		urls := r.leastUser(leastCommands)
		denied := func(i int) (what []string) {
			entries, err := r.Server(i).Client().ACLLog(bg, 100).Result()
			require.NoError(t, err)
			for _, e := range entries {
				if e.Username == "redlock" {
					what = append(what, e.Reason+" "+e.Object)
				}
			}
			return what
		}
		for _, right := range append(strings.Fields(waitingCommands), leastChannels, "") {
			t.Run("without "+right, func(t *testing.T) {
				r.grant(strings.Replace(leastCommands, right, "", 1))
				want := "command " + strings.TrimPrefix(right, "+")
				if right == leastChannels {
					r.grant(leastCommands + " resetchannels")
					want = "channel lock:redlock:free:lock:a"
				}
				for i := range r.Len() {
					require.NoError(t, r.Server(i).Client().ACLLogReset(bg).Err())
				}
				refused := func() error {
					n := 0
					for i := range r.Len() {
						if slices.Contains(denied(i), want) {
							n++
						}
					}
					if right == "" || n < r.Len() {
						return fmt.Errorf("by %d", n)
					}
					return nil
				}
				events := &recorder{}
				p, waiting := r.poolOf(urls), r.poolOf(urls, redlock.WithObserver(events.observer()))
				warm(t, p)
				warm(t, waiting)

				// 1. In order.
				ctx, cancel := context.WithTimeout(bg, nodeTimeout)
				defer cancel()
				l, err := waiting.Lock(ctx, "a", redlock.WithFair())
				if err == nil {
					require.NoError(t, l.Unlock(bg))
				}

				// 2. While another holds it for longer than a connection may be silent; and then nobody waits.
				if refused() != nil {
					l = mustLock(t, p)
					w := awaits(t, waiting, never)
					for end := time.Now().Add(3 * time.Second); refused() != nil && time.Now().Before(end); {
						<-time.After(20 * time.Millisecond)
					}
					w.leave()
					require.NoError(t, l.Unlock(bg))
				}
				switch {
				case right == "":
					eventually(t, patience, "nobody listens", func() error {
						for i := range r.Len() {
							if names := r.Server(i).Client().PubSubChannels(bg, "*").Val(); len(names) > 0 {
								return fmt.Errorf("server %d: %v", i, names)
							}
						}
						return nil
					})
					for i := range r.Len() {
						require.Empty(t, denied(i))
					}
					require.Empty(t, events.of("warning"))
				default:
					eventually(t, patience, "each server was asked for "+want, refused)
				}
				for _, pool := range []*redlock.Pool{p, waiting} {
					require.NoError(t, pool.Close())
				}
				for i := range r.Len() { // who may not leave a queue stays there for a while
					require.NoError(t, r.Server(i).Client().FlushAll(bg).Err())
				}
			})
		}
	})
}

// complaint goes through what a pool does and returns each node's reason at the first error of a server.
func complaint(t *testing.T, p *redlock.Pool) map[string]string {
	var l *redlock.Lock
	for _, step := range []func() error{
		func() (err error) { l, err = p.TryLock(bg, "a"); return err },
		func() error { return l.Extend(bg) },
		func() error { // another's key
			_, err := p.TryLock(bg, "a")
			if errors.Is(err, redlock.ErrHeld) {
				return nil
			}
			return err
		},
		func() error { return l.Unlock(bg) },
	} {
		for {
			err := step()
			if err == nil {
				break
			}
			why := reasons(t, err)
			waiting := false
			for _, w := range why {
				waiting = waiting || strings.Contains(w, "no vote")
			}
			if !waiting {
				return why
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	return nil
}

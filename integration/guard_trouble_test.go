package integration_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// What servers in trouble do to a pool that looks after their markers.

const shortGuard = time.Second

// allSteady is a pool with a short guard, over servers that have been flushed before: each has its vote.
func (r *rig) allSteady(opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	p := r.pool(append([]redlock.Option{redlock.WithTTL(shortGuard), redlock.WithRestartGuard(shortGuard)}, opts...)...)
	r.awaitSteady(p, all...)
	return p
}

// awaitSteady waits until these nodes have their vote.
func (r *rig) awaitSteady(p *redlock.Pool, indices ...int) {
	r.t.Helper()
	eventually(r.t, patience, "steady", func() error {
		if l, err := p.TryLock(bg, "steady"); err == nil {
			defer func() { _ = l.Unlock(bg) }()
		}
		for _, i := range indices {
			if n := p.Stats().Nodes[i]; !n.Steady {
				return fmt.Errorf("%s: %s%s", n.Node, n.Down, n.NoVote)
			}
		}
		return nil
	})
}

// quiet fails the test if more is asked of these nodes for a while than undo, probes and readings of the clock come to.
func quiet(t *testing.T, p *redlock.Pool, indices ...int) {
	t.Helper()
	before := p.Stats().Nodes
	<-time.After(calm)
	after := p.Stats().Nodes
	for _, i := range indices {
		require.LessOrEqual(t, after[i].Pipelines-before[i].Pipelines, uint64(calm/(50*time.Millisecond)), "%+v", after[i])
		require.LessOrEqual(t, after[i].Reconnects-before[i].Reconnects, uint64(calm/nodeTimeout))
	}
}

// foreignState is another's data under the name of the hash that holds marker and counters.
var foreignState = trouble{"WRONGTYPE",
	func(r *rig, s *servers.Server) {
		require.NoError(r.t, s.Client().Set(bg, "lock:"+stateKey, "another's", 0).Err())
	},
	func(r *rig, s *servers.Server) {
		require.Equal(r.t, "another's", s.Client().Get(bg, "lock:"+stateKey).Val(), "untouched")
		require.NoError(r.t, s.Client().Del(bg, "lock:"+stateKey).Err())
	}}

func TestServerErrorsDoNoMoreWithAGuard(t *testing.T) { // FAULTS 51
	rows := map[string]trouble{"WRONGTYPE of our hash": foreignState,
		"NOPERM of hset": command("can't run this command", []any{"ACL", "SETUSER", "default", "-hset"}, []any{"ACL", "SETUSER", "default", "+@all"}),
		"NOPERM of info": command("", []any{"ACL", "SETUSER", "default", "-info"}, []any{"ACL", "SETUSER", "default", "+@all"}),
	}
	for name, trouble := range troubles {
		rows[name] = trouble
	}
	for name, trouble := range rows {
		t.Run(name, func(t *testing.T) {
			onProcesses(t, func(t *testing.T, r *rig) {
				p := r.allSteady()
				troubled := map[int]bool{}
				begin := func(i int) { trouble.begin(r, r.Server(i)); troubled[i] = true }
				end := func() {
					for i := range troubled {
						trouble.end(r, r.Server(i))
						delete(troubled, i)
					}
				}
				defer end()

				// 1. A minority: a lock that is held stays, others can be had.
				held, err := p.TryLock(bg, "held")
				require.NoError(t, err)
				for _, i := range minority {
					begin(i)
				}
				l := mustLock(t, p)
				require.NoError(t, l.Extend(bg))
				require.NoError(t, l.Unlock(bg))
				quiet(t, p, all...)
				require.NoError(t, held.Err())
				require.NoError(t, held.Unlock(bg))

				// 2. A majority: no quorum, with the reasons, and nothing is asked again and again.
				begin(0)
				if name == "NOPERM of info" { // looked at every ten seconds, and with each connection
					require.NoError(t, mustLock(t, p).Unlock(bg))
				} else {
					_, err = p.TryLock(bg, "a")
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					why := reasons(t, err)
					for _, i := range append(minority, 0) {
						if name == "READONLY" { // told by its INFO as well
							require.Regexp(t, "READONLY|it is a slave, not a master", why[r.Server(i).Addr()])
							continue
						}
						require.Contains(t, why[r.Server(i).Addr()], trouble.word)
					}
				}
				quiet(t, p, all...)

				// 3. It is over.
				end()
				r.awaitSteady(p, all...)
				require.NoError(t, mustLock(t, p).Unlock(bg))
			})
		})
	}
}

func TestAMarkerThatCannotBeWrittenIsThatNodesReason(t *testing.T) { // FAULTS 51
	onProcesses(t, func(t *testing.T, r *rig) {
		p := r.allSteady()
		l := mustLock(t, p)
		for _, i := range minority {
			oom.begin(r, r.Server(i))
			defer oom.end(r, r.Server(i))
			require.NoError(t, r.Server(i).Client().FlushAll(bg).Err())
		}
		eventually(t, patience, "each says why", func() error {
			for _, i := range minority {
				if why := p.Stats().Nodes[i].NoVote; !strings.Contains(why, "its marker cannot be written: OOM") {
					return fmt.Errorf("%q", why)
				}
			}
			return nil
		})
		quiet(t, p, all...)
		require.NoError(t, l.Err())
		require.NoError(t, l.Unlock(bg))
		for _, i := range minority {
			oom.end(r, r.Server(i))
		}
		r.awaitSteady(p, all...)
	})
}

func TestAClusterNodeAndOneThatAsksForAPasswordHaveNoVote(t *testing.T) { // FAULTS 5, 51
	onProcesses(t, func(t *testing.T, r *rig) {
		cluster := servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithArgs("--cluster-enabled", "yes")).Server(0)
		closed := servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithPassword("secret")).Server(0)
		p := r.poolOf(append(r.URLs()[:3:3], cluster.URL(), "redis://"+closed.Addr()),
			redlock.WithTTL(shortGuard), redlock.WithRestartGuard(shortGuard))
		r.awaitSteady(p, 0, 1, 2)
		require.NoError(t, mustLock(t, p).Unlock(bg))
		nodes := p.Stats().Nodes
		require.Contains(t, nodes[3].NoVote, "it is a cluster node")
		require.Contains(t, nodes[4].Down, "NOAUTH")
		quiet(t, p, 3, 4)
		_ = p.Close() // its undos at the cluster node are never taken
	})
}

func TestScriptsAndConnectionsMayVanishAtAnyMoment(t *testing.T) { // FAULTS 10, 51
	onProcesses(t, func(t *testing.T, r *rig) {
		p := r.allSteady(redlock.WithTTL(shortGuard))
		held, err := p.TryLock(bg, "held")
		require.NoError(t, err)
		require.NoError(t, r.Server(0).Client().FlushAll(bg).Err()) // it has to be healed meanwhile

		var inside, done atomic.Int64
		var over atomic.Bool
		failed := make(chan error, 8)
		for range cap(failed) {
			go func() {
				for !over.Load() {
					l, err := p.Lock(bg, "a", redlock.WithRetry(time.Millisecond, 5*time.Millisecond))
					if err == nil {
						if inside.Add(1) != 1 {
							err = fmt.Errorf("not alone")
						}
						inside.Add(-1)
						done.Add(1)
					}
					if err == nil {
						err = l.Unlock(bg)
					}
					if err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for range 60 {
			r.each(all, func(s *servers.Server) {
				s.Client().ScriptFlush(bg)
				<-time.After(20 * time.Millisecond)
				s.Client().Do(bg, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				<-time.After(20 * time.Millisecond)
			})
		}
		over.Store(true)
		for range cap(failed) {
			require.NoError(t, <-failed)
		}
		require.Greater(t, done.Load(), int64(100))
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(bg))
		r.awaitSteady(p, all...)
	})
}

func TestServersWithTooManyClientsRefuseNewPoolsOnly(t *testing.T) { // FAULTS 51
	onProcesses(t, func(t *testing.T, r *rig) {
		p := r.allSteady()
		l := mustLock(t, p)
		r.owned(l, 5, shortGuard)
		full := setting("max number of clients reached", "maxclients", "1", "10000")
		for _, i := range majority {
			full.begin(r, r.Server(i))
			defer full.end(r, r.Server(i))
		}
		late := r.pool(redlock.WithTTL(shortGuard), redlock.WithRestartGuard(shortGuard))
		eventually(t, patience, "each says why", func() error {
			_, err := late.TryLock(bg, "b")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			for _, i := range majority {
				if down := late.Stats().Nodes[i].Down; !strings.Contains(down, full.word) {
					return fmt.Errorf("%q", down)
				}
			}
			return nil
		})
		quiet(t, late, all...)
		renewals(t, p, 2) // who is connected stays so
		require.NoError(t, l.Unlock(bg))
		for _, i := range majority {
			full.end(r, r.Server(i))
		}
		r.awaitSteady(late, all...)
	})
}

func TestALoadingServerSaysSoAndIsKeptOutForAGuard(t *testing.T) { // FAULTS 51
	onProcesses(t, func(t *testing.T, r *rig) {
		s := servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithRDB(),
			servers.WithArgs("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")).Server(0)
		pipe := s.Client().Pipeline()
		for i := range 4000 { // for longer than quiet looks
			pipe.Set(bg, fmt.Sprint("k", i), strings.Repeat("x", 200), 0)
		}
		_, err := pipe.Exec(bg)
		require.NoError(t, err)
		p := r.poolOf(append(r.URLs()[:4:4], s.URL()), redlock.WithTTL(shortGuard), redlock.WithRestartGuard(shortGuard))
		r.awaitSteady(p, all...)
		require.NoError(t, s.Client().Save(bg).Err()) // with a marker that says steady

		restarted := make(chan struct{})
		go func() { // returns when all is loaded
			defer close(restarted)
			s.RestartKeeping()
		}()
		eventually(t, patience, "the reason is LOADING", func() error {
			l, err := p.TryLock(bg, "a")
			require.NoError(t, err, "the others decide")
			require.NoError(t, l.Unlock(bg))
			if down := p.Stats().Nodes[4].Down; !strings.Contains(down, "LOADING") {
				return fmt.Errorf("%q", down)
			}
			return nil
		})
		quiet(t, p, 4)
		<-restarted
		eventually(t, patience, "it is kept out", func() error {
			return is(strings.Contains(p.Stats().Nodes[4].NoVote, "it restarted"))
		})
		r.awaitSteady(p, all...)
	})
}

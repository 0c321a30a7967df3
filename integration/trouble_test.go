package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// trouble is a state in which a server answers errors.
type trouble struct {
	word       string // in its error
	begin, end func(r *rig, s *servers.Server)
}

// setting is a trouble that comes and goes with a setting.
func setting(word, name, bad, good string) trouble {
	set := func(value string) func(*rig, *servers.Server) {
		return func(r *rig, s *servers.Server) { require.NoError(r.t, s.Client().ConfigSet(bg, name, value).Err()) }
	}
	return trouble{word, set(bad), set(good)}
}

// command is a trouble that comes and goes with a command.
func command(word string, bad, good []any) trouble {
	do := func(args []any) func(*rig, *servers.Server) {
		return func(r *rig, s *servers.Server) { require.NoError(r.t, s.Client().Do(bg, args...).Err()) }
	}
	return trouble{word, do(bad), do(good)}
}

var (
	oom      = setting("OOM", "maxmemory", "1", "0")
	misconf  = trouble{"MISCONF", breakDisk, repairDisk}
	troubles = map[string]trouble{
		"OOM":            oom,
		"MISCONF":        misconf,
		"NOREPLICAS":     setting("NOREPLICAS", "min-replicas-to-write", "1", "0"),
		"READONLY":       command("READONLY", []any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}),
		"NOPERM":         command("NOPERM", []any{"ACL", "SETUSER", "default", "-evalsha"}, []any{"ACL", "SETUSER", "default", "+@all"}),
		"NOPERM of time": command("", []any{"ACL", "SETUSER", "default", "-time"}, []any{"ACL", "SETUSER", "default", "+@all"}),
		"NOPERM within":  command("can't run this command", []any{"ACL", "SETUSER", "default", "-set"}, []any{"ACL", "SETUSER", "default", "+@all"}),
		"NOPERM of key":  command("NOPERM", []any{"ACL", "SETUSER", "default", "resetkeys"}, []any{"ACL", "SETUSER", "default", "allkeys"}),
		"BUSY":           {"BUSY", makeBusy, endBusy},
	}
)

// breakDisk has a snapshot fail, after which the server takes no writes.
func breakDisk(r *rig, s *servers.Server) {
	c := s.Client()
	home := c.ConfigGet(bg, "dir").Val()["dir"]
	require.NoError(r.t, c.Do(bg, "CONFIG", "SET", "dir", "/proc", "save", "3600 1000000").Err())
	require.NoError(r.t, c.BgSave(bg).Err())
	eventually(r.t, patience, "the snapshot has failed", func() error {
		return is(strings.Contains(c.Info(bg, "persistence").Val(), "rdb_last_bgsave_status:err"))
	})
	require.NoError(r.t, c.ConfigSet(bg, "dir", home).Err())
}

// repairDisk has a snapshot succeed.
func repairDisk(r *rig, s *servers.Server) {
	c := s.Client()
	require.NoError(r.t, c.BgSave(bg).Err())
	eventually(r.t, patience, "the snapshot has succeeded", func() error {
		return is(strings.Contains(c.Info(bg, "persistence").Val(), "rdb_last_bgsave_status:ok"))
	})
	require.NoError(r.t, c.ConfigSet(bg, "save", "").Err())
}

// makeBusy runs a script that does not end.
func makeBusy(r *rig, s *servers.Server) {
	require.NoError(r.t, s.Client().ConfigSet(bg, "busy-reply-threshold", "5").Err())
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: -1, MaxRetries: -1})
	ended := make(chan error, 1)
	go func() { ended <- c.Eval(bg, "while true do end", nil).Err() }()
	r.last(func() { // endBusy ends it
		<-ended
		_ = c.Close()
	})
	eventually(r.t, patience, "it is busy", func() error {
		return is(strings.Contains(fmt.Sprint(s.Client().Get(bg, "x").Err()), "BUSY"))
	})
}

func endBusy(r *rig, s *servers.Server) {
	eventually(r.t, patience, "it is not busy any more", func() error {
		if err := s.Client().ScriptKill(bg).Err(); err != nil && strings.Contains(err.Error(), "NOTBUSY") {
			return nil
		}
		return errNotYet
	})
}

// calm is for how long nothing is asked of servers in trouble, and they are hardly spoken to. Longer than an idle node's
// clock is left alone.
const calm = 1500 * time.Millisecond

func TestServerErrorsAreThatNodesReasonAndNoStorm(t *testing.T) { // FAULTS 51
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			onReal(t, func(t *testing.T, r *rig) {
				p := r.pool()
				warm(t, p)

				// 1. A minority: nobody minds.
				for _, i := range minority {
					trouble.begin(r, r.Server(i))
					defer trouble.end(r, r.Server(i))
				}
				l := mustLock(t, p)
				require.NoError(t, l.Extend(bg))
				require.NoError(t, l.Unlock(bg))

				// 2. A majority: no quorum, with the reasons. Nothing is asked again and again.
				trouble.begin(r, r.Server(0))
				defer trouble.end(r, r.Server(0))
				_, err := p.TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotErrorIs(t, err, redlock.ErrHeld)
				why := reasons(t, err)
				for _, i := range append(minority, 0) {
					require.Contains(t, why[r.Server(i).Addr()], trouble.word)
				}
				before := p.Stats().Nodes[0]
				<-time.After(calm)
				after := p.Stats().Nodes[0]
				require.LessOrEqual(t, after.Pipelines-before.Pipelines, uint64(calm/(100*time.Millisecond)), "undo and probes only")
				require.LessOrEqual(t, after.Reconnects-before.Reconnects, uint64(calm/nodeTimeout))
			})
		})
	}
}

func TestALockIsKeptAndReleasedByServersOutOfMemory(t *testing.T) { // FAULTS 51
	onReal(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithTTL(time.Second))
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		for _, i := range all {
			oom.begin(r, r.Server(i))
			defer oom.end(r, r.Server(i))
		}
		renewals(t, p, 4)
		require.True(t, l.Valid())
		_, err := p.TryLock(bg, "b")
		require.ErrorContains(t, err, "OOM")
		require.NoError(t, l.Unlock(bg))
		eventually(t, slack, "released", func() error { return none(r.keys()) })
	})
}

func TestALockRunsOutOnServersThatTakeNoWrites(t *testing.T) { // FAULTS 51
	onReal(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithTTL(1500 * time.Millisecond))
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		for _, i := range majority {
			misconf.begin(r, r.Server(i))
			defer misconf.end(r, r.Server(i))
		}
		late := awaitLoss(t, l)
		require.Less(t, late, slack)
		require.ErrorIs(t, l.Err(), redlock.ErrNoQuorum)
		require.NotErrorIs(t, l.Err(), redlock.ErrHeld)
		for _, i := range majority {
			require.Contains(t, reasons(t, l.Err())[r.Server(i).Addr()], "MISCONF")
		}
	})
}

func TestALoadingServerSaysSo(t *testing.T) { // FAULTS 51
	onReal(t, func(t *testing.T, r *rig) {
		own := servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithRDB(),
			servers.WithArgs("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"))
		s := own.Server(0)
		pipe := s.Client().Pipeline()
		for i := range 1000 {
			pipe.Set(bg, fmt.Sprint("k", i), strings.Repeat("x", 200), 0)
		}
		_, err := pipe.Exec(bg)
		require.NoError(t, err)
		require.NoError(t, s.Client().Save(bg).Err())

		p := r.poolOf(append(r.URLs()[:4:4], s.URL()))
		warm(t, p)
		alone := r.poolOf([]string{s.URL()})
		warm(t, alone)
		restarted := make(chan struct{})
		go func() { // returns when all is loaded
			defer close(restarted)
			s.RestartKeeping()
		}()
		defer func() { <-restarted }()
		eventually(t, patience, "the reason is LOADING", func() error {
			_, err := alone.TryLock(bg, "a")
			if err == nil || !strings.Contains(err.Error(), "LOADING") {
				return fmt.Errorf("it is %v", err)
			}
			return nil
		})
		l := mustLock(t, p)
		require.NoError(t, l.Unlock(bg))
		<-restarted
		l = mustLock(t, alone)
		require.NoError(t, l.Unlock(bg))
		warm(t, p)
	})
}

func TestAClusterNodeSaysSo(t *testing.T) { // FAULTS 51
	onReal(t, func(t *testing.T, r *rig) {
		own := servers.Start(t, 1, servers.WithProvider(r.Provider()), servers.WithArgs("--cluster-enabled", "yes"))
		p := r.poolOf([]string{r.Server(0).URL(), r.Server(1).URL(), own.Server(0).URL()}, redlock.WithQuorum(redlock.All))
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Contains(t, reasons(t, err)[own.Server(0).Addr()], "CLUSTERDOWN")
	})
}

func TestForeignDataUnderOurKeyStaysUntouched(t *testing.T) { // FAULTS 51, invariant 8
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool()
		warm(t, p)
		foreign := func(indices ...int) {
			for _, i := range indices {
				require.NoError(t, r.Server(i).Client().HSet(bg, "lock:a", "field", "value").Err())
			}
		}
		untouched := func(indices ...int) {
			for _, i := range indices {
				c := r.Server(i).Client()
				require.Equal(t, map[string]string{"field": "value"}, c.HGetAll(bg, "lock:a").Val())
				require.Equal(t, time.Duration(-1), c.PTTL(bg, "lock:a").Val())
			}
		}
		foreign(minority...)
		l := mustLock(t, p)
		require.NoError(t, l.Extend(bg))
		require.NoError(t, l.Unlock(bg))
		untouched(minority...)

		for _, i := range minority {
			require.NoError(t, r.Server(i).Client().Del(bg, "lock:a").Err())
		}
		foreign(majority...)
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		for _, i := range majority {
			require.Contains(t, reasons(t, err)[r.Server(i).Addr()], "WRONGTYPE")
		}
		warm(t, p) // the undo has been there
		untouched(majority...)
		for _, i := range majority {
			require.NoError(t, r.Server(i).Client().Del(bg, "lock:a").Err())
		}
	})
}

func TestForgottenScriptsAreLoadedAgain(t *testing.T) { // FAULTS 51: NOSCRIPT
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithTTL(time.Second))
		warm(t, p)
		flush := func() {
			for _, i := range all {
				require.NoError(t, r.Server(i).Client().ScriptFlush(bg).Err())
			}
		}
		flush()
		l, err := p.TryLock(bg, "a")
		require.NoError(t, err)
		r.owned(l, 5, nodeTimeout+slack)
		flush()
		renewals(t, p, 1)
		flush()
		require.NoError(t, l.Extend(bg))
		require.Equal(t, 2, l.Margin())
		flush()
		require.NoError(t, l.Unlock(bg))
		eventually(t, nodeTimeout+slack, "released", func() error { return none(r.keys()) })
		require.Zero(t, p.Stats().RenewalsFailed)
	})
}

func TestKilledConnectionsRefuseNobody(t *testing.T) { // FAULTS 10, 51
	onReal(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithTTL(2 * time.Second))
		warm(t, p)
		held, err := p.Lock(bg, "held")
		require.NoError(t, err)
		for range 50 {
			r.each(all, func(s *servers.Server) { s.Client().Do(bg, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
			l, err := p.TryLock(bg, "a")
			require.NoError(t, err)
			require.NoError(t, l.Unlock(bg))
		}
		require.NoError(t, held.Extend(bg))
		require.NoError(t, held.Unlock(bg))
	})
}

package nemesis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

var bg = context.Background()

// sleeper is a client process that does nothing.
type sleeper struct {
	cmd   *exec.Cmd
	seen  []string
	alive bool
}

func (s *sleeper) Start() error {
	s.cmd = exec.Command("sleep", "600")
	s.alive = true
	s.seen = append(s.seen, "start")
	return s.cmd.Start()
}

func (s *sleeper) signal(name string, sig syscall.Signal) error {
	s.seen = append(s.seen, name)
	return s.cmd.Process.Signal(sig)
}

func (s *sleeper) Freeze() error { return s.signal("freeze", syscall.SIGSTOP) }
func (s *sleeper) Thaw() error   { return s.signal("thaw", syscall.SIGCONT) }
func (s *sleeper) Kill() error {
	err := s.signal("kill", syscall.SIGKILL)
	_ = s.cmd.Wait()
	s.alive = false
	return err
}

// realWorld is five servers, two clients and the network between them.
func realWorld(t *testing.T, p servers.Provider) World {
	opts := []servers.Option{servers.WithProvider(p)}
	w := World{Clocks: p == servers.Processes}
	if w.Clocks {
		opts = append(opts, servers.WithClock())
	}
	aof := servers.Start(t, 3, append(slices.Clone(opts), servers.WithAOF())...)
	rdb := servers.Start(t, 2, append(slices.Clone(opts), servers.WithRDB())...)
	for _, set := range []*servers.Set{aof, rdb} {
		for i := range set.Len() {
			w.Servers = append(w.Servers, set.Server(i))
		}
	}
	w.Keeps = []Keeps{AOF, AOF, AOF, Snapshot, Snapshot}
	for range 2 {
		var links []Link
		for _, s := range w.Servers {
			proxy, err := redlocktest.NewProxy(s.Addr())
			require.NoError(t, err)
			t.Cleanup(func() { _ = proxy.Close() })
			links = append(links, Link{proxy})
		}
		w.Links = append(w.Links, links)
		s := &sleeper{}
		require.NoError(t, s.Start())
		t.Cleanup(func() {
			if s.alive {
				_ = s.Kill()
			}
		})
		w.Clients = append(w.Clients, s)
	}
	return w
}

// check returns an error unless every server answers every client at once, keeps what it is told and has the right time.
func check(w World) error {
	for c, links := range w.Links {
		for i, l := range links {
			client := redis.NewClient(&redis.Options{Addr: l.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
			ctx, cancel := context.WithTimeout(bg, 150*time.Millisecond)
			_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "written", 1, time.Second)
				return p.Ping(ctx).Err()
			})
			before := time.Now().Add(-10 * time.Millisecond)
			now, terr := client.Time(ctx).Result()
			after := time.Now().Add(10 * time.Millisecond)
			cancel()
			_ = client.Close()
			if err != nil || terr != nil {
				return fmt.Errorf("client %d, node %d: %v, %v", c, i, err, terr)
			}
			if now.Before(before) || now.After(after) {
				return fmt.Errorf("node %d's clock is off by %v", i, now.Sub(after))
			}
		}
	}
	return nil
}

// now is a plan of one step.
func now(s Step) Plan { return Plan{Config{Duration: time.Hour}, []Step{s}} }

// containersAlone are the faults that are done to a container otherwise than to a process.
var containersAlone = []string{"freeze", "kill", "restart-empty", "restart-aof", "restart-rdb", "disconnect"}

func TestEveryFaultIsMended(t *testing.T) {
	for _, p := range servers.Providers(t) {
		if p == servers.Embedded {
			continue
		}
		t.Run(string(p), func(t *testing.T) {
			w := realWorld(t, p)
			for _, k := range Kinds {
				if p == servers.Containers && !slices.Contains(containersAlone, k.Name) {
					continue // what is done to links, to clients, or by a command is the same for all servers
				}
				if !slices.Contains(Possible(w, nil), k.Name) {
					continue // not in this world
				}
				plan, err := NewPlan(w, Config{Seed: 3, Duration: 10 * time.Second, Pace: time.Second, Only: []string{k.Name}})
				require.NoError(t, err)
				require.NotEmpty(t, plan.Steps)
				s := plan.Steps[0]
				s.At, s.For = 0, min(s.For, 400*time.Millisecond)
				stop := func() {}
				if k.Name == "replay" {
					stop = askAll(t, w)
				}
				n := New(w, func(s Step, _ Phase, err error) { require.NoError(t, err, "%v", s) })
				require.NoError(t, n.Run(bg, now(s)), k.Name)
				stop()
				require.Eventually(t, func() bool { return check(w) == nil }, 5*time.Second, 10*time.Millisecond, "%v: %v", s, check(w))
			}
		})
	}
}

// seenIn runs a fault and returns what check says in the middle of it.
func seenIn(t *testing.T, w World, name string) (during error) {
	t.Helper()
	k := find(name)
	require.NotNil(t, k, name)
	plan, err := NewPlan(w, Config{Seed: 1, Duration: 20 * time.Second, Pace: time.Second, Only: []string{name}})
	require.NoError(t, err)
	require.NotEmpty(t, plan.Steps)
	s := plan.Steps[0]
	s.At, s.For = 0, time.Minute
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { require.NoError(t, New(w, func(Step, Phase, error) {}).Run(ctx, now(s))) })
	for until := time.Now().Add(5 * time.Second); during == nil && time.Now().Before(until); {
		during = check(w)
	}
	cancel() // mends it at once
	running.Wait()
	require.Eventually(t, func() bool { return check(w) == nil }, 5*time.Second, 10*time.Millisecond, name)
	return during
}

// What is called a fault and changes nothing would be counted for nothing.
func TestFaultsThatLastAreFelt(t *testing.T) {
	w := realWorld(t, processes(t))
	for _, k := range Kinds {
		if k.max == 0 || k.scope == onClient || k.Name == "old-snapshot" || !(&promise{world: w}).has(k) {
			continue // felt by what is gone, or by processes: below
		}
		require.Error(t, seenIn(t, w, k.Name), k.Name)
	}
}

// processes skips a test where there are none: another kind of server would show nothing more.
func processes(t *testing.T) servers.Provider {
	t.Helper()
	if !slices.Contains(servers.Providers(t), servers.Processes) {
		t.Skip("shown on processes")
	}
	return servers.Processes
}

func TestWhatIsForgottenIsGone(t *testing.T) {
	w := realWorld(t, processes(t))
	forgets := map[string]bool{
		"restart-empty": true, "flushall": true, "restart-majority-empty": true, "flush-majority": true,
		"restart-aof": false, "restart-rdb": false, "old-snapshot": true, "script-flush": false, "client-kill": false,
	}
	for name, gone := range forgets {
		plan, err := NewPlan(w, Config{Seed: 1, Duration: 20 * time.Second, Pace: time.Second, Only: []string{name}})
		require.NoError(t, err)
		s := plan.Steps[0]
		s.At, s.For = 0, 300*time.Millisecond
		write := func() {
			for _, i := range s.Nodes {
				require.NoError(t, w.Servers[i].Client().Set(bg, "k", name, 0).Err())
			}
		}
		for _, server := range w.Servers {
			require.NoError(t, server.Client().FlushAll(bg).Err())
		}
		if name != "old-snapshot" {
			write()
		}
		// With an fsync each second a write may be answered while the one before is being synced, and is not in the file.
		for _, i := range s.Nodes {
			require.Eventually(t, func() bool {
				info := w.Servers[i].Client().Info(bg, "persistence").Val()
				return !strings.Contains(info, "aof_enabled:1") ||
					strings.Contains(info, "aof_pending_bio_fsync:0") && strings.Contains(info, "aof_buffer_length:0")
			}, 5*time.Second, time.Millisecond)
		}
		report := func(_ Step, what Phase, _ error) {
			if what == Done && name == "old-snapshot" { // saved; what is written from here on is forgotten
				write()
			}
		}
		require.NoError(t, New(w, report).Run(bg, now(s)))
		for _, i := range s.Nodes {
			n, err := w.Servers[i].Client().Exists(bg, "k").Result()
			require.NoError(t, err)
			require.Equal(t, gone, n == 0, name)
		}
	}
}

func TestProcessesAreFrozenStarvedAndReplaced(t *testing.T) {
	s := &sleeper{}
	require.NoError(t, s.Start())
	defer func() { _ = s.Kill() }()
	w := World{Keeps: make([]Keeps, 5), Clients: []Client{s}}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"freeze-client", []string{"freeze", "thaw"}},
		{"kill-client", []string{"kill", "start"}},
	} {
		s.seen = nil
		require.NoError(t, New(w, func(Step, Phase, error) {}).Run(bg, now(Step{Kind: c.name, Clients: []int{0}, For: time.Millisecond})))
		require.Equal(t, c.want, s.seen)
	}
	s.seen = nil
	require.NoError(t, New(w, func(Step, Phase, error) {}).Run(bg, now(Step{Kind: "starve-client", Clients: []int{0}, For: 500 * time.Millisecond})))
	require.Equal(t, []string{"freeze", "thaw", "freeze", "thaw"}, s.seen[:4])
	require.Equal(t, "thaw", s.seen[len(s.seen)-1])
}

func TestAFaultThatCannotBeDoneIsTakenBackAndReportedAsThat(t *testing.T) {
	gone := &sleeper{cmd: exec.Command("sleep", "0")}
	require.NoError(t, gone.cmd.Run())
	for _, kind := range []string{"freeze-client", "starve-client"} {
		var phases []Phase
		var told error
		w := World{Keeps: make([]Keeps, 5), Clients: []Client{gone}}
		began := time.Now()
		err := New(w, func(_ Step, what Phase, err error) {
			phases = append(phases, what)
			told = err
		}).Run(bg, now(Step{Kind: kind, Clients: []int{0}, For: time.Minute}))
		require.Less(t, time.Since(began), 30*time.Second, "it waits for nothing")
		require.Equal(t, []Phase{Begins, Failed}, phases, kind)
		require.ErrorIs(t, told, os.ErrProcessDone)
		require.ErrorIs(t, err, os.ErrProcessDone, "it could not be thawed")
	}
}

func TestWhatDoesNotFitAnyMoreIsReported(t *testing.T) {
	s := &sleeper{}
	require.NoError(t, s.Start())
	defer func() { _ = s.Kill() }()
	var left []int
	w := World{Keeps: make([]Keeps, 5), Clients: []Client{slowly{s}}}
	err := New(w, func(s Step, what Phase, _ error) {
		if what == LeftOut {
			left = append(left, s.ID)
		}
	}).Run(bg, Plan{Config{Duration: 50 * time.Millisecond}, []Step{
		{ID: 1, Kind: "kill-client", Clients: []int{0}, For: time.Millisecond}, // takes a tenth of a second to come back
		{ID: 2, Kind: "freeze-client", Clients: []int{0}, At: 5 * time.Millisecond},
		{ID: 3, Kind: "freeze-client", Clients: []int{0}, At: 6 * time.Millisecond},
	}})
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, left)
}

// A step that takes longer than planned makes those wait that the promise does not allow beside it.
func TestWhatTakesLongerThanPlannedIsWaitedFor(t *testing.T) {
	slow := &sleeper{}
	require.NoError(t, slow.Start())
	defer func() { _ = slow.Kill() }()
	w := World{Keeps: make([]Keeps, 5), Clients: []Client{slowly{slow}}}
	var mu sync.Mutex
	var seen []string
	err := New(w, func(s Step, what Phase, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(s.ID, " ", what))
	}).Run(bg, Plan{Config{Duration: time.Hour}, []Step{
		{ID: 1, Kind: "kill-client", Clients: []int{0}, For: time.Millisecond},
		{ID: 2, Kind: "freeze-client", Clients: []int{0}, At: 5 * time.Millisecond},
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"1 begins", "1 done", "1 healed", "2 begins", "2 done", "2 healed"}, seen)
}

// slowly takes its time to come back.
type slowly struct{ *sleeper }

func (s slowly) Start() error {
	time.Sleep(100 * time.Millisecond)
	return s.sleeper.Start()
}

// Faults of a moment that take no data: a connection, or the scripts, are gone.
func TestFaultsOfAMomentAreFelt(t *testing.T) {
	w := realWorld(t, processes(t))
	client := redis.NewClient(&redis.Options{Addr: w.Links[0][0].Addr(), MaxRetries: -1, PoolSize: 1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	script := redis.NewScript(`return 1`)
	for name, s := range map[string]Step{
		"half-open":    {Pairs: []Pair{{0, 0}}},
		"client-kill":  {Nodes: []int{0}},
		"script-flush": {Nodes: []int{0}},
	} {
		require.NoError(t, script.Load(bg, client).Err())
		call := func() error {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			return script.EvalSha(ctx, client, nil).Err()
		}
		require.NoError(t, call())
		before := client.ClientID(bg).Val()
		s.Kind = name
		require.NoError(t, New(w, func(_ Step, _ Phase, err error) { require.NoError(t, err) }).Run(bg, now(s)))
		if name != "client-kill" { // the client sees the end of its connection before it sends, and makes another
			require.Error(t, call(), name)
		}
		if name != "script-flush" {
			// The end of the connection may still be on its way through the proxy.
			require.Eventually(t, func() bool { return client.Ping(bg).Err() == nil }, 5*time.Second, time.Millisecond, name)
			require.NotEqual(t, before, client.ClientID(bg).Val(), name)
		}
		require.NoError(t, script.Load(bg, client).Err(), name)
	}
}

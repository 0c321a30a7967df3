package integration_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

const (
	nodeTimeout = 250 * time.Millisecond      // the default
	undoBound   = nodeTimeout + 3*time.Second // how long a key that nobody wants may stay
	slack       = 100 * time.Millisecond      // what a busy machine may take to run a goroutine that is due
	patience    = 10 * time.Second            // for what has no bound of its own
)

var bg = context.Background()

// fleet keeps five servers of each kind for the whole run: to start them anew for each test would take most of its
// time. Tests do not run in parallel, so each has them to itself.
var fleet = map[servers.Provider]*servers.Set{}

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		holder()
		return
	}
	code := m.Run()
	if !keeper.end() {
		code = 1
	}
	os.Exit(code)
}

// keeper stands for the run as a whole: servers that it starts outlive the test, and fail the test that uses them.
var keeper = &runTB{}

type runTB struct {
	testing.TB // the test that runs now
	cleanups   []func()
	failed     bool
	over       bool
}

func (k *runTB) Name() string     { return "integration" }
func (k *runTB) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }
func (k *runTB) TempDir() string {
	dir, err := os.MkdirTemp("", "redlock-integration-")
	if err != nil {
		k.Fatalf("%v", err)
	}
	k.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (k *runTB) Errorf(format string, args ...any) {
	if k.over {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		k.failed = true
		return
	}
	k.TB.Helper()
	k.TB.Errorf(format, args...)
}

// end stops the servers and reports whether nothing went wrong.
func (k *runTB) end() bool {
	k.over = true
	for _, f := range slices.Backward(k.cleanups) {
		f()
	}
	return !k.failed
}

// rig is what one test works with: five servers, and the pools and proxies that it makes of them.
type rig struct {
	*servers.Set
	t       *testing.T
	pools   []*redlock.Pool
	proxies []*redlocktest.Proxy
	lasts   []func()
}

// last has f called after the pools of the test are closed.
func (r *rig) last(f func()) { r.lasts = append(r.lasts, f) }

// onEvery runs a claim on every kind of server that is to be had.
func onEvery(t *testing.T, claim func(t *testing.T, r *rig)) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		t.Run(string(p), func(t *testing.T) { claim(t, newRig(t, p)) })
	}
}

// onReal is onEvery without embedded nodes, for what only a true Redis does.
func onReal(t *testing.T, claim func(t *testing.T, r *rig)) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		t.Run(string(p), func(t *testing.T) {
			if p == servers.Embedded {
				t.Skip("needs a real Redis")
			}
			claim(t, newRig(t, p))
		})
	}
}

// onProcesses is onReal without containers, for what is the server's doing alone: another way to run it shows nothing more.
func onProcesses(t *testing.T, claim func(t *testing.T, r *rig)) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		t.Run(string(p), func(t *testing.T) {
			if p != servers.Processes {
				t.Skip("shown on processes")
			}
			claim(t, newRig(t, p))
		})
	}
}

// offContainers is onEvery without containers: one that restarts resets connections for a while, so that what a server
// would have said of itself cannot be told from that.
func offContainers(t *testing.T, claim func(t *testing.T, r *rig)) {
	t.Helper()
	onEvery(t, func(t *testing.T, r *rig) {
		if r.Provider() == servers.Containers {
			t.Skip("a restarted container resets connections for a while")
		}
		claim(t, r)
	})
}

func newRig(t *testing.T, p servers.Provider) *rig {
	keeper.TB = t
	set := fleet[p]
	if set == nil {
		opts := []servers.Option{servers.WithProvider(p)}
		if p != servers.Embedded {
			opts = append(opts, servers.WithArgs("--enable-protected-configs", "yes"))
		}
		set = servers.Start(keeper, 5, opts...)
		fleet[p] = set
	}
	return rigOn(t, set)
}

// rigOn is newRig with servers of a test's own.
func rigOn(t *testing.T, set *servers.Set) *rig {
	r := &rig{Set: set, t: t}
	for i := range r.Len() {
		require.NoError(t, r.Server(i).Client().FlushAll(bg).Err())
	}
	before := len(goroutines())
	t.Cleanup(func() { r.finish(before) })
	return r
}

// finish repairs the servers and checks that the test left nothing behind: no key for longer than an undo may take, no
// goroutine of ours at all.
func (r *rig) finish(before int) {
	t := r.t
	for i := range r.Len() {
		s := r.Server(i)
		s.Thaw()
		if s.CanDisconnect() {
			s.Reconnect()
		}
		if s.Client().Ping(bg).Err() != nil {
			s.Restart()
		}
	}
	if !t.Failed() {
		eventually(t, undoBound+slack, "no key of ours is left", func() error { return none(r.keys()) })
	}
	for _, p := range r.pools {
		_ = p.Close() // may tell of an undo whose second is not over
	}
	for _, p := range r.proxies {
		_ = p.Close()
	}
	for _, f := range slices.Backward(r.lasts) {
		f()
	}
	if !t.Failed() {
		eventually(t, patience, "all goroutines have ended", func() error { return strays(before) })
	}
}

// strays tells of goroutines of the library, or of more than there were before.
func strays(before int) error {
	all := goroutines()
	for _, g := range all {
		if strings.Contains(g, "github.com/seed71a1c8e3/redlock.") {
			return fmt.Errorf("left behind:\n%s", g)
		}
	}
	if len(all) > before {
		return fmt.Errorf("%d goroutines, %d before:\n%s", len(all), before, strings.Join(all, "\n\n"))
	}
	return nil
}

// goroutines lists the stacks of all but those that a Docker engine's client keeps for a while.
func goroutines() (stacks []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if !strings.Contains(g, "net/http.(*persistConn)") {
			stacks = append(stacks, g)
		}
	}
	return stacks
}

// unguarded is for servers that have just been started, or flushed between two tests: they would have no vote for a
// restart guard. Tests of the guard set their own.
func unguarded() []redlock.Option { return []redlock.Option{redlock.WithRestartGuard(0)} }

// pool makes a pool over all servers. It is closed with the test.
func (r *rig) pool(opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	return r.poolOf(r.URLs(), opts...)
}

func (r *rig) poolOf(urls []string, opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	p, err := redlock.Open(urls, append(unguarded(), opts...)...)
	require.NoError(r.t, err)
	r.pools = append(r.pools, p)
	return p
}

// poolOn is poolOf with clients, which are closed after the pool.
func (r *rig) poolOn(clients []*redis.Client, opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	p, err := redlock.New(clients, append(unguarded(), opts...)...)
	require.NoError(r.t, err)
	r.pools = append(r.pools, p)
	return p
}

// warm makes a pool's connections: what follows meets nodes that are up.
func warm(t *testing.T, p *redlock.Pool) {
	t.Helper()
	eventually(t, patience, "every node is connected", func() error { return connect(p) })
}

// connect has every node of a pool answer an acquire and a release. Afterwards nothing is under way.
func connect(p *redlock.Pool) error {
	before := p.Stats().Nodes
	l, err := p.Lock(bg, "warm")
	if err != nil {
		return err
	}
	answered := func(k uint64) bool {
		for i, n := range p.Stats().Nodes {
			if n.Requests < before[i].Requests+k {
				return false
			}
		}
		return true
	}
	soon := time.Now().Add(nodeTimeout)
	wait := func(k uint64) {
		for !answered(k) && time.Now().Before(soon) {
			time.Sleep(time.Millisecond)
		}
	}
	wait(1)
	if err := l.Unlock(bg); err != nil {
		return err
	}
	wait(2)
	if !answered(2) {
		return fmt.Errorf("some node has not answered: %+v", p.Stats().Nodes)
	}
	return nil
}

// behindProxies puts a proxy in front of each server and returns them with their URLs.
func (r *rig) behindProxies() ([]*redlocktest.Proxy, []string) {
	r.t.Helper()
	var urls []string
	first := len(r.proxies)
	for i := range r.Len() {
		p, err := redlocktest.NewProxy(r.Server(i).Addr())
		require.NoError(r.t, err)
		r.proxies = append(r.proxies, p)
		urls = append(urls, "redis://"+p.Addr())
	}
	return r.proxies[first:], urls
}

// each does something to some of the servers at once.
func (r *rig) each(indices []int, f func(s *servers.Server)) {
	done := make(chan struct{})
	for _, i := range indices {
		go func() {
			defer func() { done <- struct{}{} }()
			f(r.Server(i))
		}()
	}
	for range indices {
		<-done
	}
}

func (r *rig) freeze(indices ...int) { r.each(indices, (*servers.Server).Freeze) }
func (r *rig) thaw(indices ...int)   { r.each(indices, (*servers.Server).Thaw) }

var (
	all      = []int{0, 1, 2, 3, 4}
	majority = []int{0, 1, 2}
	minority = []int{3, 4}
)

// owners counts the servers whose key holds the token.
func (r *rig) owners(key, token string) int {
	n := 0
	for i := range r.Len() {
		if r.Server(i).Client().Get(bg, key).Val() == token {
			n++
		}
	}
	return n
}

// stateKey ends the name of the hash that stays on every server, with its marker and its fence counters.
const stateKey = "redlock:node"

// keys lists what is on the servers, apart from that.
func (r *rig) keys() []string {
	var found []string
	for i := range r.Len() {
		found = append(found, r.keysOn(i)...)
	}
	return found
}

func (r *rig) keysOn(i int) (found []string) {
	c := r.Server(i).Client()
	keys, err := c.Keys(bg, "*").Result()
	if err != nil {
		found = append(found, err.Error())
	}
	for _, k := range keys {
		if !strings.HasSuffix(k, stateKey) {
			found = append(found, fmt.Sprintf("%s on server %d: %s for another %v", k, i, c.Get(bg, k).Val(), c.PTTL(bg, k).Val()))
		}
	}
	return found
}

func none(found []string) error {
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("there are:\n%s", strings.Join(found, "\n"))
}

package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// What the tests of the restart guard have in common. Their guard is short, and as long as the TTL: no lock that a
// server forgot may live longer.
const (
	guard     = time.Second
	guardTTL  = guard
	guardOver = guard + guard/100 + 2*time.Millisecond // with the allowance of the default drift
	healing   = guardOver + 2*time.Second              // until a server that answers again is steady, on a busy machine
)

// guarded makes a pool with that guard over all servers.
func (r *rig) guarded(opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	return r.guardedOf(r.URLs(), opts...)
}

func (r *rig) guardedOf(urls []string, opts ...redlock.Option) *redlock.Pool {
	r.t.Helper()
	return r.poolOf(urls, append([]redlock.Option{redlock.WithTTL(guardTTL), redlock.WithRestartGuard(guard)}, opts...)...)
}

// unused makes the servers look as if no lock had ever been on them: empty, and without the script that tells a process
// that was flushed from one that is new.
func (r *rig) unused() {
	r.t.Helper()
	for i := range r.Len() {
		require.NoError(r.t, r.Server(i).Client().FlushAll(bg).Err())
		require.NoError(r.t, r.Server(i).Client().ScriptFlush(bg).Err())
	}
}

// ready makes guarded pools and waits until every server has a vote in each.
func (r *rig) ready(n int, opts ...redlock.Option) []*redlock.Pool {
	r.t.Helper()
	r.unused()
	var ps []*redlock.Pool
	for range n {
		ps = append(ps, r.guarded(opts...))
	}
	for _, p := range ps {
		eventually(r.t, healing+time.Second, "every node has a vote", func() error { return allSteady(p) })
	}
	return ps
}

func allSteady(p *redlock.Pool) error {
	if l, err := p.TryLock(bg, "warm"); err == nil { // a pool connects for its first acquire
		_ = l.Unlock(bg)
	}
	for _, n := range p.Stats().Nodes {
		if !n.Steady || !n.Connected {
			return fmt.Errorf("%s: %s%s", n.Node, n.NoVote, n.Down)
		}
	}
	return nil
}

// marker is what a server's marker says; empty if it has none or does not answer.
func (r *rig) marker(i int) string {
	return r.Server(i).Client().HGet(bg, "lock:"+stateKey, "marker").Val()
}

// runID is a server's present run.
func (r *rig) runID(i int) string {
	for line := range strings.Lines(r.Server(i).Client().Info(bg, "server").Val()) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}

// steady says whether a server's marker gives it a vote, for all clients alike.
func (r *rig) steady(i int) bool {
	run := r.runID(i)
	return run != "" && strings.HasSuffix(r.marker(i), " run="+run+" steady")
}

// forgets does to a server what makes it forget, and checks that it is steady no sooner than a guard later, and by then.
// Between, look is called.
func (r *rig) forgets(i int, fault func(s *servers.Server), look func()) {
	r.t.Helper()
	run := r.runID(i)
	began := time.Now()
	fault(r.Server(i))
	if now := r.runID(i); now != run {
		run = now
	}
	r.heals(i, began, look)
	require.Equal(r.t, run, r.runID(i))
}

// heals checks that a server that forgot at the given time is steady no sooner than a guard later, and soon then.
func (r *rig) heals(i int, began time.Time, look func()) {
	r.t.Helper()
	eventually(r.t, healing, fmt.Sprint("server ", i, " is steady again"), func() error {
		if look != nil {
			look()
		}
		if !r.steady(i) {
			return fmt.Errorf("its marker is %q", r.marker(i))
		}
		return nil
	})
	require.GreaterOrEqual(r.t, time.Since(began), guard, "steady before its guard was over")
}

// novote is what the pool says against each server; empty where it has a vote.
func novote(p *redlock.Pool) (why []string) {
	for _, n := range p.Stats().Nodes {
		why = append(why, n.NoVote)
	}
	return why
}

// granted says which servers grant an acquire of a resource of its own.
func (r *rig) granted(p *redlock.Pool, resource string) []bool {
	r.t.Helper()
	before := p.Stats().Nodes
	got := make([]bool, len(before))
	l, err := p.TryLock(bg, resource)
	if err != nil {
		why := reasons(r.t, err)
		for i, n := range before {
			got[i] = why[n.Node] == ""
		}
		return got
	}
	soon := time.Now().Add(nodeTimeout / 2) // later its renewal gives the key to those that did not grant
	for i := range got {
		answered := false
		for ; !answered && before[i].Down == "" && time.Now().Before(soon); time.Sleep(100 * time.Microsecond) {
			answered = p.Stats().Nodes[i].Requests > before[i].Requests
		}
		got[i] = answered && r.Server(i).Client().Get(bg, "lock:"+resource).Val() == l.Token()
	}
	require.NoError(r.t, l.Unlock(bg))
	return got
}

// votesWithout waits until all five servers but some grant an acquire. Those never do.
func (r *rig) votesWithout(p *redlock.Pool, none ...int) {
	r.t.Helper()
	eventually(r.t, patience, fmt.Sprint("all vote but ", none), func() error {
		got := r.granted(p, "b")
		for i, granted := range got {
			if without := slices.Contains(none, i); without == granted {
				require.False(r.t, without, "server %d has voted", i)
				return fmt.Errorf("%v: %v", got, novote(p))
			}
		}
		return nil
	})
}

// refused has a pool try once, and returns the error that says why a majority has no vote.
func refused(t *testing.T, p *redlock.Pool) error {
	t.Helper()
	_, err := p.TryLock(bg, "a")
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	return err
}

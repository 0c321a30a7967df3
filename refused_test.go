package redlock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAQuestionThatIsRefusedIsNotAskedWithoutEnd(t *testing.T) {
	for _, refused := range []string{"hgetall", "hmget"} {
		t.Run(refused, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p := guarded(t, ps)
				require.NotContains(t, grants(t, p, "a"), false)
				for _, peer := range ps[1:] {
					peer.do(func() {
						peer.Errs[refused] = "NOPERM this user has no permissions to run the '" + refused + "' command"
					})
				}
				ps[0].reboot(false)
				_ = grants(t, p, "b")
				time.Sleep(guardOver + time.Minute)
				require.LessOrEqual(t, ps[1].count(refused), 70, "once a second")
				require.NotContains(t, grants(t, p, "c")[1:], false, "and whatever else is asked is answered")
				if refused == "hmget" {
					require.Contains(t, p.Stats().Nodes[0].NoVote, "until a majority of the others has told it their fence counters")
				} else {
					require.Empty(t, p.Stats().Nodes[0].NoVote)
				}
			})
		})
	}
}

func TestAServerThatRefusesReleasesIsNotFloodedWithThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		for i := range 500 {
			n.ask(v, opAcquire, fmt.Sprint("k", i), fmt.Sprint("t", i))
		}
		synctest.Wait()
		p.do(func() { p.Errs["release"] = "NOPERM this user has no permissions to run the 'evalsha' command" })
		for i := range 500 {
			n.ask(v, opRelease, fmt.Sprint("k", i), fmt.Sprint("t", i))
		}
		synctest.Wait()
		before := p.count("release")
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, p.count("release")-before, 51, "one try every 200 ms")
		require.Equal(t, 500, n.undoPending())

		p.do(func() { delete(p.Errs, "release") })
		time.Sleep(time.Second / 2)
		require.Zero(t, n.undoPending(), "once it has taken one, all")
	})
}

func TestOtherSettingsAreRefusedAndBothNamed(t *testing.T) { // FAULTS 56, 57
	for name, row := range map[string]struct {
		nodes int
		opts  []Option
		want  string
	}{
		"another number of nodes": {3, nil, "n=3 k=2 guard=30000"},
		"another quorum":          {5, []Option{WithQuorum(AtLeast(4))}, "n=5 k=4 guard=30000"},
		"another guard":           {5, []Option{WithRestartGuard(time.Minute), WithTTL(time.Minute)}, "n=5 k=3 guard=60000"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				first := guarded(t, ps)
				lockAndUnlock(t, first, "a")
				p := guarded(t, ps[:row.nodes], row.opts...)
				_, err := p.TryLock(bg, "a")
				require.ErrorIs(t, err, ErrNoQuorum)
				require.ErrorContains(t, err, "n=5 k=3 guard=30000")
				require.ErrorContains(t, err, row.want)
				require.ErrorContains(t, err, "for all clients")
				time.Sleep(2 * guard)
				require.Equal(t, 5, steadies(ps))
				lockAndUnlock(t, first, "a")
				require.NotEmpty(t, p.Stats().Nodes[0].NoVote)
			})
		})
	}
}

func TestATTLAboveTheGuardIsRefused(t *testing.T) { // FAULTS 57
	_, err := newPoolOptions([]Option{WithTTL(time.Minute), WithRestartGuard(guard)})
	require.ErrorContains(t, err, "WithRestartGuard(1m0s)")
	bubble(t, func(t *testing.T) {
		p := guarded(t, newPeers(t, 5))
		for _, o := range []LockOption{WithTTL(time.Minute), WithLease(31 * time.Second)} {
			_, err := p.TryLock(bg, "a", o)
			require.ErrorContains(t, err, "more than the restart guard of 30s")
		}
		_, err := testPool(t, newPeers(t, 3), WithRestartGuard(0)).TryLock(bg, "a", WithTTL(time.Hour))
		require.NoError(t, err)
	})
}

func TestServersThatMustNotVoteAreRefused(t *testing.T) { // FAULTS 63
	for name, row := range map[string]struct {
		info map[string]string
		want string
	}{
		"a replica":           {map[string]string{"role": "slave"}, "not a master"},
		"a cluster node":      {map[string]string{"cluster_enabled": "1"}, "cluster-enabled no"},
		"one that evicts":     {map[string]string{"maxmemory": "1", "maxmemory_policy": "volatile-lru"}, "maxmemory-policy noeviction"},
		"one without run ids": {map[string]string{"run_id": ""}, "no run_id"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p := guarded(t, ps)
				lockAndUnlock(t, p, "a")
				ps[1].do(func() { ps[1].Info = row.info }) // found only later
				time.Sleep(lookWhileSteady + time.Second)
				require.Equal(t, []bool{true, false, true, true, true}, grants(t, p, "a"))
				require.Contains(t, p.Stats().Nodes[1].NoVote, row.want)
				for _, x := range ps[2:4] {
					x.do(func() { x.Info = row.info })
				}
				time.Sleep(lookWhileSteady + time.Second)
				_, err := p.TryLock(bg, "a")
				require.ErrorContains(t, err, row.want)
				for _, x := range ps {
					x.do(func() { x.Info = nil })
				}
				time.Sleep(2 * time.Second)
				lockAndUnlock(t, p, "a")
			})
		})
	}
	t.Run("one that may not show INFO", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			ps := newPeers(t, 3)
			for _, x := range ps {
				x.Errs["info"] = "NOPERM this user has no permissions to run the 'info' command"
			}
			_, err := guarded(t, ps).TryLock(bg, "a")
			require.ErrorContains(t, err, "+info")
			require.ErrorContains(t, err, "WithRestartGuard(0)")
			lockAndUnlock(t, testPool(t, ps), "a")
		})
	})
}

func TestOneServerGivenTwiceHasNoVote(t *testing.T) { // FAULTS 33
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		ps[1].Run = ps[0].Run
		p := guarded(t, ps)
		_, err := p.TryLock(bg, "a")
		require.ErrorContains(t, err, ps[0].name)
		require.ErrorContains(t, err, ps[1].name)
		require.ErrorContains(t, err, "one server must not vote twice")
	})
	bubble(t, func(t *testing.T) { // found only later: a name that was moved
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		ps[1].do(func() { ps[1].Run = ps[0].Run })
		ps[1].cut()
		require.NotEqual(t, []bool{true, true}, grants(t, p, "a")[:2], "never two votes, not even the first time")
		time.Sleep(time.Second)
		require.Equal(t, []bool{false, false, true, true, true}, grants(t, p, "a"))
		require.Contains(t, p.Stats().Nodes[0].NoVote, ps[1].name)
		require.Contains(t, p.Stats().Nodes[1].NoVote, ps[0].name)
	})
}

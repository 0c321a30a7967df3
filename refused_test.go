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

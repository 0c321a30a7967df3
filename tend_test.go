package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// SCRIPT FLUSH takes the witness away, and without it a flush of the data looks like a start of new servers.
func TestScriptFlushThenFlushIsNotAFirstUse(t *testing.T) {
	for name, back := range map[string]func(p *Pool){
		"a request finds its script gone": func(p *Pool) { lockAndUnlock(t, p, "b"); time.Sleep(time.Second) },
		"nothing is asked for":            func(p *Pool) { time.Sleep(lookWhileSteady) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				p := guarded(t, ps)
				lockAndUnlock(t, p, "a")
				time.Sleep(time.Second)
				for _, x := range ps {
					x.do(func() { clear(x.Scripts) })
				}
				back(p)
				for _, x := range ps {
					x.flush()
				}
				_, err := guarded(t, ps).TryLock(bg, "a")
				require.ErrorIs(t, err, ErrNoQuorum)
				require.ErrorContains(t, err, "lost its data")
			})
		})
	}
}

// Its own words, CLUSTERDOWN or MOVED, would not say what to do.
func TestAClusterNodeIsCalledOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		for _, x := range ps {
			x.Info = map[string]string{"cluster_enabled": "1"}
			x.Errs["hget"], x.Errs["acquire"] = "CLUSTERDOWN Hash slot not served", "CLUSTERDOWN Hash slot not served"
		}
		p := guarded(t, ps)
		_, err := p.TryLock(bg, "a")
		require.ErrorContains(t, err, "cluster-enabled no")
		require.NotContains(t, err.Error(), "CLUSTERDOWN")
		require.Contains(t, p.Stats().Nodes[0].NoVote, "cluster-enabled no")
	})
}

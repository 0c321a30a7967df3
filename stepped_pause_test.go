package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Our machine was paused for 20 s; when it wakes, its network comes back node by node.
func TestAPauseThatShowsNodeByNodeMarksNobody(t *testing.T) {
	for _, gap := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, time.Second, 2 * time.Second} {
		t.Run(gap.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				for _, x := range ps {
					x.delay = time.Millisecond
				}
				events, observe := stepEvents()
				p := guarded(t, ps, observe)
				leased, err := p.Lock(bg, "leased", WithLease(29*time.Second))
				require.NoError(t, err)
				time.Sleep(2300 * time.Millisecond)
				for _, x := range ps {
					x.step(20 * time.Second)
					x.freeze()
				}
				time.Sleep(300 * time.Millisecond)
				for _, x := range ps {
					x.thaw()
					time.Sleep(gap)
				}
				time.Sleep(time.Second)
				require.Equal(t, 5, steadies(ps))
				require.Empty(t, (<-events).Node, "it is our own clock")
				time.Sleep(6 * time.Second)
				require.False(t, leased.Valid(), "by now the nodes would give it to another")
			})
		})
	}
}

// Our machine was paused for 20 s and wakes with only two nodes within reach. A rival reaches all.
func TestAPauseThatOnlyTwoNodesShowEndsOurLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for _, x := range ps {
			x.delay = time.Millisecond
		}
		var cutOff atomic.Bool
		all := settings(ps)
		for _, o := range all[2:] {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, n, a string) (net.Conn, error) {
				if cutOff.Load() {
					return nil, errors.New("no route to host")
				}
				return dial(ctx, n, a)
			}
		}
		o, err := newPoolOptions([]Option{WithRestartGuard(guard)})
		require.NoError(t, err)
		p := start(all, o, 3, (&suspendClock{}).clock())
		defer p.Close()
		leased, err := p.Lock(bg, "leased", WithLease(29*time.Second))
		require.NoError(t, err)
		time.Sleep(2300 * time.Millisecond)
		cutOff.Store(true)
		for i, x := range ps {
			x.step(20 * time.Second)
			if i >= 2 {
				x.cut()
			}
		}
		ps[1].freeze()
		time.Sleep(1500 * time.Millisecond)
		ps[1].thaw()
		time.Sleep(6 * time.Second)
		next, err := guarded(t, ps).TryLock(bg, "leased")
		require.False(t, err == nil && next.Valid() && leased.Valid(), "two owners")
	})
}

// Our own clock is slewed for a while; the nodes are at different distances.
func TestOurOwnSlewMarksNobody(t *testing.T) {
	for _, rate := range []float64{0.012, 0.013, 0.015, 0.02, 0.04, 0.08, -0.013, -0.02, -0.08} {
		for _, pause := range []time.Duration{0, 37 * time.Millisecond, 370 * time.Millisecond} {
			t.Run(fmt.Sprint(rate, " every ", pause), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					ps := newPeers(t, 5)
					for i, x := range ps {
						x.delay = time.Duration(200+i*i*400) * time.Microsecond // 0.2 to 6.6 ms
					}
					p := guarded(t, ps)
					lockAndUnlock(t, p, "b")
					traffic := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); {
							if pause == 0 {
								time.Sleep(time.Second)
								continue
							}
							if l, err := p.TryLock(bg, "b"); err == nil {
								_ = l.Unlock(bg)
							}
							time.Sleep(pause)
						}
					}
					traffic(20 * time.Second)
					for _, x := range ps {
						x.speed(rate)
					}
					lowest := 5
					for range 20 {
						traffic(time.Second)
						lowest = min(lowest, steadies(ps))
					}
					require.Equal(t, 5, lowest, "steady for all clients")
				})
			})
		}
	}
}

// One client's clock is slewed by 2 % (chrony's default limit is 8.3 %). Another client and all nodes are right.
func TestAClientWithASlewedClockCostsTheOthersNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for i, x := range ps {
			x.delay = time.Duration(200+i*i*400) * time.Microsecond // 0.2 to 6.6 ms away
		}
		honest := guarded(t, ps)
		l := mustLock(t, honest)
		began := time.Now()
		slewed := &suspendClock{hook: func() time.Duration {
			return max(0, time.Since(began)-20*time.Second) / 50
		}}
		p := newPoolAt(t, ps, slewed, WithRestartGuard(guard))
		lowest := 5
		for time.Since(began) < 90*time.Second {
			if b, err := p.TryLock(bg, "b"); err == nil {
				_ = b.Unlock(bg)
			}
			time.Sleep(37 * time.Millisecond)
			lowest = min(lowest, steadies(ps))
		}
		require.Equal(t, 5, lowest)
		require.True(t, l.Valid())
	})
}

// Round trips that change all the time, and no allowance at all.
func TestSlowNodesGiveNoFalseAlarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		events, observe := stepEvents()
		p := testPool(t, ps, WithRestartGuard(3*time.Second), WithTTL(3*time.Second), WithDrift(0, 0), observe)
		for i := range 2000 {
			for j, x := range ps {
				x.do(func() { x.delay = time.Duration((i*7+j*13)%40) * time.Millisecond })
			}
			l, err := p.TryLock(bg, "b")
			if err == nil {
				require.NoError(t, l.Unlock(bg))
			}
			time.Sleep(time.Duration(i%5) * 7 * time.Millisecond)
		}
		require.Empty(t, events)
		require.Equal(t, 5, steadies(ps))
	})
}

// It is won, and not watched yet, when our own pause is found out.
func TestAPauseShortensALockThatIsBeingHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "b")
		terms, _, err := p.opts.terms(nil)
		require.NoError(t, err)
		h, err := p.quorum.acquire(bg, &wish{terms, []string{"a"}, []string{"lock:a"}})
		require.NoError(t, err)
		p.quorum.keeper.ourClock(31 * time.Second) // all nodes' replies say so
		l := p.hand(bg, h, 1, 0)
		require.False(t, l.Valid())
	})
}

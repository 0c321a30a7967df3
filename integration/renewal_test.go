package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

func TestAHeldLockKeepsRivalsOut(t *testing.T) { // FAULTS 19
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		p, rival := r.pool(redlock.WithTTL(ttl)), r.pool(redlock.WithTTL(ttl))
		l := mustLock(t, p)
		ctx, cancel := context.WithTimeout(bg, 5*ttl)
		defer cancel()
		for ctx.Err() == nil {
			_, err := rival.TryLock(bg, "a")
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.Greater(t, rival.Stats().Denied, uint64(100))
		require.True(t, l.Valid())
		require.NoError(t, l.Unlock(bg))
		l, err := rival.TryLock(bg, "a")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(bg))
	})
}

func TestALossIsToldBeforeAnotherCanOwnIt(t *testing.T) { // FAULTS 19, 20; invariant 3
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		proxies, urls := r.behindProxies()
		p, rival := r.poolOf(urls, redlock.WithTTL(ttl)), r.pool(redlock.WithTTL(ttl))
		warm(t, p)
		for range 3 {
			l := mustLock(t, p)
			renewals(t, p, 1)
			for _, proxy := range proxies { // its holder alone is cut off
				proxy.BlackHole(true)
			}
			other := mustLock(t, rival, redlock.WithRetry(time.Millisecond, 2*time.Millisecond))
			require.False(t, l.Valid(), "two valid locks")
			select {
			case <-l.Lost():
			case <-time.After(slack):
				t.Fatal("the loss is not told")
			}
			for _, proxy := range proxies {
				proxy.BlackHole(false)
			}
			require.NoError(t, other.Unlock(bg))
			warm(t, p)
		}
	})
}

func TestAFrozenMajorityIsALossByTheDeadline(t *testing.T) { // FAULTS 20, 30
	onEvery(t, func(t *testing.T, r *rig) {
		var rec recorder
		p := r.pool(redlock.WithTTL(1500*time.Millisecond), redlock.WithObserver(rec.observer()))
		l := mustLock(t, p)
		ctx := l.Context()
		renewals(t, p, 1)
		r.freeze(majority...)
		late := awaitLoss(t, l)
		t.Log("the loss was told after the deadline by", late)
		require.Less(t, late, slack, "what a busy machine takes to run a goroutine; the library itself is in time")
		eventually(t, slack, "its ctx has ended", ctxEnded(ctx))
		for _, err := range []error{l.Err(), context.Cause(ctx)} {
			require.ErrorIs(t, err, redlock.ErrLost)
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			why := reasons(t, err)
			for _, i := range majority {
				require.Contains(t, why[r.Server(i).Addr()], "no answer within 250ms")
			}
		}

		r.thaw(majority...)
		again := mustLock(t, p)
		require.False(t, l.Valid())
		require.ErrorIs(t, l.Unlock(bg), redlock.ErrLost)
		require.True(t, again.Valid())
		require.NoError(t, again.Unlock(bg))
		require.Len(t, rec.of("lost"), 1)
	})
}

func ctxEnded(ctx context.Context) func() error {
	return func() error { return is(ctx.Err() != nil) }
}

func TestKeysGoneOnAMajorityAreALossAtTheNextRenewal(t *testing.T) { // FAULTS 21
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = 3 * time.Second
		p := r.pool(redlock.WithTTL(ttl))
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout)
		renewals(t, p, 1)
		for _, i := range majority {
			require.NoError(t, r.Server(i).Client().Del(bg, "lock:a").Err())
		}
		deleted := time.Now()
		select {
		case <-l.Lost():
		case <-time.After(patience):
			t.Fatal("the loss is not told")
		}
		require.Less(t, time.Since(deleted), ttl/3+slack, "at the next renewal, not at the deadline")
		require.ErrorIs(t, l.Err(), redlock.ErrHeld)
		require.NotErrorIs(t, l.Err(), redlock.ErrNoQuorum)
		eventually(t, nodeTimeout+slack, "what the renewal gave back is taken again", func() error { return none(r.keys()) })
	})
}

func TestOneFailedRenewalRoundLosesNothing(t *testing.T) { // FAULTS 22
	onEvery(t, func(t *testing.T, r *rig) {
		var rec recorder
		p := r.pool(redlock.WithTTL(3*time.Second), redlock.WithObserver(rec.observer()))
		l := mustLock(t, p)
		renewals(t, p, 1)
		r.freeze(all...)
		eventually(t, 2*time.Second, "a renewal fails", func() error { return is(len(rec.of("renewal_failed")) > 0) })
		r.thaw(all...)
		require.Contains(t, rec.of("renewal_failed")[0].Err.Error(), "no answer within 250ms")
		renewals(t, p, 2)
		require.True(t, l.Valid())
		require.Empty(t, rec.of("lost"))
		require.NoError(t, l.Unlock(bg))
	})
}

func TestNodesThatForgetOneAfterTheOtherAreHealed(t *testing.T) { // FAULTS 23, 25
	for name, forget := range map[string]func(s *servers.Server){
		"flushed":   func(s *servers.Server) { _ = s.Client().FlushAll(bg) },
		"restarted": (*servers.Server).Restart,
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, r *rig) {
				const ttl = 1500 * time.Millisecond
				p := r.pool(redlock.WithTTL(ttl))
				l := mustLock(t, p)
				rival := r.pool(redlock.WithTTL(ttl))
				r.owned(l, 5, nodeTimeout+slack)
				for i := range r.Len() {
					forget(r.Server(i))
					_, err := rival.TryLock(bg, "a")
					require.ErrorIs(t, err, redlock.ErrHeld)
					eventually(t, ttl/2+2*nodeTimeout, "it is healed", func() error {
						return is(r.owners("lock:a", l.Token()) == 5 && l.Margin() == 2)
					})
					renewals(t, p, 2)
				}
				require.True(t, l.Valid())
				require.Zero(t, p.Stats().Lost)
				require.GreaterOrEqual(t, p.Stats().Refilled, uint64(5))
				require.NoError(t, l.Unlock(bg))
			})
		})
	}
}

func TestMaxHoldEndsALock(t *testing.T) { // FAULTS 26
	onEvery(t, func(t *testing.T, r *rig) {
		const limit, ttl = 1500 * time.Millisecond, time.Second
		p, rival := r.pool(redlock.WithTTL(ttl)), r.pool()
		start := time.Now()
		l := mustLock(t, p, redlock.WithMaxHold(limit))
		renewals(t, p, 2)
		require.NoError(t, l.Extend(bg))
		require.False(t, l.ValidUntil().After(start.Add(limit+slack)), "Extend does not pass it")
		late := awaitLoss(t, l)
		require.Less(t, late, slack)
		require.InDelta(t, limit.Seconds(), time.Since(start).Seconds(), slack.Seconds())
		require.ErrorIs(t, l.Err(), redlock.ErrMaxHold)
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.NotErrorIs(t, l.Err(), redlock.ErrNoQuorum)
		within(t, ttl, "free again", func() {
			l, err := rival.Lock(bg, "a")
			require.NoError(t, err)
			require.NoError(t, l.Unlock(bg))
		})
	})
}

func TestAPanicInDoReleasesAndGoesOn(t *testing.T) { // FAULTS 27
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool()
		warm(t, p)
		require.PanicsWithValue(t, "boom", func() {
			_ = p.Do(bg, "a", func(context.Context) error {
				eventually(t, nodeTimeout, "held", func() error { return is(len(r.keys()) == 5) })
				panic("boom")
			})
		})
		eventually(t, slack, "released", func() error { return none(r.keys()) })
	})
}

func TestDoEndsItsCtxOnLoss(t *testing.T) { // FAULTS 20
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithTTL(time.Second))
		err := p.Do(bg, "a", func(ctx context.Context) error {
			r.freeze(majority...)
			eventually(t, patience, "its ctx has ended", ctxEnded(ctx))
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, redlock.ErrLost)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	})
}

func TestASlowObserverDelaysNothing(t *testing.T) { // FAULTS 29
	onEvery(t, func(t *testing.T, r *rig) {
		block := make(chan struct{})
		wait := func(redlock.Event) { <-block }
		p := r.pool(redlock.WithTTL(time.Second), redlock.WithObserver(redlock.Observer{Acquired: wait, Renewed: wait, Released: wait}))
		defer close(block)
		l := mustLock(t, p)
		eventually(t, patience, "more events than anybody keeps", func() error {
			other, err := p.Lock(bg, "b")
			if err == nil {
				err = other.Unlock(bg)
			}
			for range 100 {
				if l, err := p.TryLock(bg, "b"); err == nil {
					_ = l.Unlock(bg)
				}
			}
			if err == nil && p.Stats().EventsDropped == 0 {
				err = errNotYet
			}
			return err
		})
		renewals(t, p, 6)
		require.True(t, l.Valid())
		require.NotZero(t, p.Stats().EventsDropped)
		require.NoError(t, l.Unlock(bg))
	})
}

func TestADeadMinorityLosesNothing(t *testing.T) { // FAULTS 1, 20
	onEvery(t, func(t *testing.T, r *rig) {
		const ttl = time.Second
		p := r.pool(redlock.WithTTL(ttl))
		l := mustLock(t, p)
		r.Server(minority[0]).Kill()
		r.Server(minority[1]).Freeze()
		throughout(t, 3*ttl, func() error {
			if !l.Valid() {
				return fmt.Errorf("lost: %w", l.Err())
			}
			return nil
		})
		require.Zero(t, l.Margin())
		r.Server(minority[0]).Restart()
		r.Server(minority[1]).Thaw()
		r.owned(l, 5, ttl)
		eventually(t, ttl, "the margin is restored", func() error { return is(l.Margin() == 2) })
		require.NoError(t, l.Unlock(bg))
	})
}

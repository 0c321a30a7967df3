package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stepEvents collects what a pool says of clocks.
func stepEvents() (chan Event, Option) {
	all := make(chan Event, 100)
	return all, WithObserver(Observer{ClockStepped: func(ev Event) { all <- ev }})
}

func TestASteppedServerHasNoVoteForAGuard(t *testing.T) { // FAULTS 32
	for name, wrong := range map[string]func(*peer){
		"an hour ahead":  func(p *peer) { p.step(time.Hour) },
		"an hour behind": func(p *peer) { p.step(-time.Hour) },
		"20 ms ahead":    func(p *peer) { p.step(20 * time.Millisecond) },
		"20 ms behind":   func(p *peer) { p.step(-20 * time.Millisecond) },
		"8 % fast":       func(p *peer) { p.speed(0.08); time.Sleep(2 * time.Second); p.speed(0) },
		"8 % slow":       func(p *peer) { p.speed(-0.08); time.Sleep(2 * time.Second); p.speed(0) },
		"1.5 % fast":     func(p *peer) { p.speed(0.015); time.Sleep(20 * time.Second); p.speed(0) },
		"30 years ahead": func(p *peer) { p.step(30 * 365 * 24 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ps := newPeers(t, 5)
				events, observe := stepEvents()
				p, rival := guarded(t, ps, observe), guarded(t, ps)
				l := mustLock(t, p)
				lockAndUnlock(t, rival, "b")
				time.Sleep(20 * time.Second)
				wrong(ps[1])
				time.Sleep(1100 * time.Millisecond) // an idle node is asked once a second
				want := []bool{true, false, true, true, true}
				require.Equal(t, want, grants(t, p, "b"))
				require.Equal(t, want, grants(t, rival, "b"))
				require.Equal(t, 4, steadies(ps), "for all clients")
				require.Equal(t, ps[1].name, (<-events).Node)
				require.Equal(t, 1, l.Margin(), "four steady nodes hold it")

				time.Sleep(guard - 3*time.Second)
				require.Equal(t, want, grants(t, p, "b"))
				_, err := guarded(t, ps).TryLock(bg, "a")
				require.ErrorIs(t, err, ErrHeld)
				time.Sleep(6 * time.Second)
				require.Equal(t, []bool{true, true, true, true, true}, grants(t, p, "b"))
				time.Sleep(11 * time.Second)
				require.True(t, l.Valid(), "a false clock loses no lock")
				require.Equal(t, 2, l.Margin())
				require.Empty(t, events)
			})
		})
	}
}

// The step shows in the reply that would have been the vote, not only a second later.
func TestAStepBeforeAGrantShowsInThatGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "a")
		time.Sleep(10 * time.Second)
		ps[0].do(func() { ps[0].refuse = true })
		ps[0].cut()
		ps[1].step(600 * time.Millisecond) // more would be too late anyway
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "clock")
		time.Sleep(2 * time.Second)
		require.Zero(t, leftovers(ps), "what the stepped node granted is undone")
	})
}

func TestAHonestClockIsNeverMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		for i, x := range ps {
			x.delay = time.Duration(i) * time.Millisecond / 2
			x.speed(float64(i-2) * 0.004) // within the 1 % that WithDrift allows
		}
		events, observe := stepEvents()
		p := guarded(t, ps, observe)
		l := mustLock(t, p)
		for i := range 300 {
			lockAndUnlock(t, p, "b")
			ps[i%5].do(func() { ps[i%5].delay = time.Duration(i%13) * 3 * time.Millisecond })
			time.Sleep(time.Duration(i%7) * 500 * time.Millisecond)
		}
		require.Empty(t, events)
		require.Equal(t, 5, steadies(ps))
		require.True(t, l.Valid())
		clock := p.Stats().Nodes[4].Clock
		require.InDelta(t, 0.008, clock.Rate, 0.004)
		require.Less(t, clock.RateBound, 0.01)
	})
}

// Baselines are replaced every now and then, and sooner where the guard is short; the rate stays known all the same.
func TestARateOnceKnownStaysKnown(t *testing.T) {
	for _, guard := range []time.Duration{2 * time.Second, guard} {
		bubble(t, func(t *testing.T) {
			ps := newPeers(t, 3)
			ps[1].delay = time.Millisecond
			ps[1].speed(0.005)
			p := guarded(t, ps, WithTTL(guard), WithRestartGuard(guard))
			lockAndUnlock(t, p, "a")
			time.Sleep(5 * time.Second)
			for range 600 {
				clock := p.Stats().Nodes[1].Clock
				require.InDelta(t, 0.005, clock.Rate, 0.001, guard)
				require.NotZero(t, clock.RateBound)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// Our machine was paused for 20 s, and our clocks with it: all nodes seem to have stepped alike.
func TestOurOwnPauseMarksNobodyAndShortensOurLocks(t *testing.T) { // FAULTS 62
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		events, observe := stepEvents()
		p, other := guarded(t, ps, observe), guarded(t, ps)
		leased, err := p.Lock(bg, "leased", WithLease(25*time.Second))
		require.NoError(t, err)
		kept := mustLock(t, p)
		lockAndUnlock(t, other, "b")
		time.Sleep(2050 * time.Millisecond) // beside the pools' own seconds: no reading may come between the nodes' steps
		before := time.Until(leased.ValidUntil())
		for _, x := range ps {
			x.step(20 * time.Second)
		}
		time.Sleep(1500 * time.Millisecond) // a reading a second, and the other nodes' word
		require.InDelta(t, (before - 21500*time.Millisecond).Seconds(), time.Until(leased.ValidUntil()).Seconds(), 0.2)
		require.Empty(t, (<-events).Node)
		require.Equal(t, 5, steadies(ps))
		require.True(t, kept.Valid())
		require.Greater(t, time.Until(kept.ValidUntil()), 25*time.Second, "it was renewed at once")
		_, err = p.TryLock(bg, "b")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.ErrorContains(t, err, "our own clock was wrong: no new lock for another")

		time.Sleep(guardOver)
		require.False(t, leased.Valid())
		require.True(t, kept.Valid())
		lockAndUnlock(t, p, "b")
		require.Empty(t, events)
	})
}

func TestOurOwnSlowClockTakesNoLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		lockAndUnlock(t, p, "b")
		for _, x := range ps {
			x.speed(0.08)
		}
		time.Sleep(3 * time.Second)
		for range 10 {
			_, err := p.TryLock(bg, "b")
			require.ErrorContains(t, err, "our own clock was wrong")
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, 5, steadies(ps))
	})
}

// Our pool alone cannot tell whose clock is wrong: it does without that node, and leaves its marker alone.
func TestWithoutWitnessesNobodyIsMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 2)
		events, observe := stepEvents()
		p := guarded(t, ps, observe)
		lockAndUnlock(t, p, "a")
		time.Sleep(2 * time.Second)
		ps[0].step(time.Minute)
		ps[1].step(-time.Minute)
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, steadies(ps))
		require.NotEmpty(t, events)
		_, err := p.TryLock(bg, "a")
		require.Error(t, err)
		time.Sleep(guardOver)
		lockAndUnlock(t, p, "a")
	})
}

// A restart breaks the connection and with it the baseline; but the clock has stepped all the same.
func TestAStepAcrossAReconnectionIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		events, observe := stepEvents()
		p := guarded(t, ps, observe)
		lockAndUnlock(t, p, "a")
		time.Sleep(2 * time.Second)
		ps[2].step(time.Minute)
		ps[2].cut()
		require.Equal(t, []bool{true, true, false, true, true}, grants(t, p, "a"))
		require.Equal(t, ps[2].name, (<-events).Node)
	})
}

package nemesis

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock/redlocktest"
)

// Link is the network between one client and one node: a proxy that they talk through.
type Link struct{ *redlocktest.Proxy }

// Cut makes the network eat everything, both ways.
func (l Link) Cut(on bool) error {
	l.BlackHole(on)
	return nil
}

// CutRequests makes it eat what the client sends; what the node still answers arrives.
func (l Link) CutRequests(on bool) error {
	l.BlackHoleRequests(on)
	return nil
}

// CutReplies makes it eat what the node sends: requests are executed.
func (l Link) CutReplies(on bool) error {
	l.BlackHoleReplies(on)
	return nil
}

// SlowBytes lets some hundred bytes a second through: a request of ours takes seconds.
func (l Link) SlowBytes(on bool) error {
	const slow = 300 // bytes a second
	if !on {
		l.Trickle(0)
		return nil
	}
	l.Trickle(slow)
	return nil
}

// every does something to all links of a step.
func every(w *World, s Step, f func(l Link) error) error {
	var errs []error
	for _, p := range s.Pairs {
		errs = append(errs, f(w.Links[p.Client][p.Node]))
	}
	return errors.Join(errs...)
}

// links is a fault that is switched on and off.
func links(set func(l Link, on bool) error) inflictor {
	return func(w *World, s Step) (func() error, error) {
		turn := func(on bool) error { return every(w, s, func(l Link) error { return set(l, on) }) }
		return func() error { return turn(false) }, turn(true)
	}
}

// pulses calls f again and again until it is stopped, each time after a pause that chance decides, and last with last. The
// error is that of the first call: the fault could not even begin.
func pulses(s Step, low, high time.Duration, f func(i int, rng *rand.Rand) error, last func() error) (func() error, error) {
	rng := rand.New(rand.NewPCG(s.Chance, 1))
	if err := f(0, rng); err != nil {
		return last, err
	}
	stop := make(chan struct{})
	var running sync.WaitGroup // one goroutine, until heal is called
	var errs []error
	running.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(low + time.Duration(rng.Int64N(int64(high-low)))):
			}
			if err := f(i, rng); err != nil {
				errs = append(errs, err)
			}
		}
	})
	return func() error {
		close(stop)
		running.Wait()
		return errors.Join(append(errs, last())...)
	}, nil
}

// flapping cuts links and lets them go on, several times a second.
func flapping(w *World, s Step) (func() error, error) {
	turn := func(on bool) error { return every(w, s, func(l Link) error { return l.Cut(on) }) }
	return pulses(s, 30*time.Millisecond, 300*time.Millisecond,
		func(i int, _ *rand.Rand) error { return turn(i%2 == 0) },
		func() error { return turn(false) })
}

// resets breaks the connections again and again, also in the middle of an exchange.
func resets(w *World, s Step) (func() error, error) {
	return pulses(s, 10*time.Millisecond, 200*time.Millisecond,
		func(_ int, rng *rand.Rand) error {
			return every(w, s, func(l Link) error {
				if rng.IntN(2) == 0 {
					l.Proxy.Cut()
				} else {
					l.DropReplies(1)
				}
				return nil
			})
		},
		func() error {
			return every(w, s, func(l Link) error {
				l.DropReplies(0)
				return nil
			})
		})
}

// latency adds 10 to 300 ms to each reply, changes that all the time, and up to 100 ms that are another for each reply.
func latency(w *World, s Step) (func() error, error) {
	set := func(delay, jitter time.Duration) error {
		return every(w, s, func(l Link) error {
			l.Delay(delay)
			l.Jitter(jitter, s.Chance)
			return nil
		})
	}
	return pulses(s, 50*time.Millisecond, 400*time.Millisecond,
		func(_ int, rng *rand.Rand) error {
			return set(10*time.Millisecond+time.Duration(rng.Int64N(int64(290*time.Millisecond))), 100*time.Millisecond)
		},
		func() error { return set(0, 0) })
}

// halfOpen makes the nodes' side of the connections die without a word.
func halfOpen(w *World, s Step) (func() error, error) {
	return nil, every(w, s, func(l Link) error {
		l.HalfOpen()
		return nil
	})
}

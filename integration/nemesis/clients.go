package nemesis

import (
	"errors"
	"math/rand/v2"
	"time"
)

func clients(w *World, s Step, f func(c Client) error) error {
	var errs []error
	for _, i := range s.Clients {
		errs = append(errs, f(w.Clients[i]))
	}
	return errors.Join(errs...)
}

func freezeClient(w *World, s Step) (func() error, error) {
	return func() error { return clients(w, s, Client.Thaw) }, clients(w, s, Client.Freeze)
}

func killClient(w *World, s Step) (func() error, error) {
	return func() error { return clients(w, s, Client.Start) }, clients(w, s, Client.Kill)
}

// starveClient lets a process run for some milliseconds only, now and then, as under a CPU quota.
func starveClient(w *World, s Step) (func() error, error) {
	return pulses(s, 10*time.Millisecond, 90*time.Millisecond,
		func(i int, _ *rand.Rand) error {
			if i%2 == 0 {
				return clients(w, s, Client.Freeze)
			}
			return clients(w, s, Client.Thaw)
		},
		func() error { return clients(w, s, Client.Thaw) })
}

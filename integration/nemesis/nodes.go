package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/servers"
)

// commandTimeout bounds the nemesis' own commands to a server.
const commandTimeout = 5 * time.Second

// inflict brings a step's fault about. What a server's own methods report by ending the test becomes an error.
func inflict(w *World, s Step) (heal func() error, err error) {
	err = attempt(func() error {
		heal, err = find(s.Kind).inflict(w, s)
		return err
	})
	if heal == nil {
		return nil, err
	}
	undo := heal
	return func() error { return attempt(undo) }, err
}

// attempt turns a panic with an error into that error: so a testing.TB that is no test can say that something failed, see [Failure].
func attempt(f func() error) (err error) {
	defer func() {
		if failure, ok := recover().(Failure); ok {
			err = failure
		}
	}()
	return f()
}

// Failure is what a testing.TB that stands for a program panics with where a test would end.
type Failure string

func (f Failure) Error() string { return string(f) }

// nodes does something to each of a step's servers, all at once.
func nodes(w *World, s Step, f func(s *servers.Server) error) error {
	errs := make(chan error, len(s.Nodes))
	for _, i := range s.Nodes {
		go func() { errs <- attempt(func() error { return f(w.Servers[i]) }) }()
	}
	var all error
	for range s.Nodes {
		all = errors.Join(all, <-errs)
	}
	return all
}

// done is for methods that report a failure by themselves.
func done(f func(s *servers.Server)) func(s *servers.Server) error {
	return func(s *servers.Server) error {
		f(s)
		return nil
	}
}

func freeze(w *World, s Step) (func() error, error) {
	return func() error { return nodes(w, s, done((*servers.Server).Thaw)) }, nodes(w, s, done((*servers.Server).Freeze))
}

// kill takes servers away. They come back with what they have on disk, if anything.
func kill(w *World, s Step) (func() error, error) {
	back := func() error {
		return nodes(w, s, func(server *servers.Server) error { return again(w, server) })
	}
	return back, nodes(w, s, done((*servers.Server).Kill))
}

func again(w *World, server *servers.Server) error {
	for i, other := range w.Servers {
		if other == server && w.Keeps[i] != Nothing {
			server.RestartKeeping()
			return nil
		}
	}
	server.Restart()
	return nil
}

func restartEmpty(w *World, s Step) (func() error, error) {
	return nil, nodes(w, s, done((*servers.Server).Restart))
}

func restartKeeping(w *World, s Step) (func() error, error) {
	return nil, nodes(w, s, done((*servers.Server).RestartKeeping))
}

func restartSaved(w *World, s Step) (func() error, error) {
	return nil, nodes(w, s, func(server *servers.Server) error {
		if err := do(server, "SAVE"); err != nil {
			return err
		}
		server.RestartKeeping()
		return nil
	})
}

// oldSnapshot lets a server come back with what it had when the step began.
func oldSnapshot(w *World, s Step) (func() error, error) {
	err := nodes(w, s, func(server *servers.Server) error { return do(server, "SAVE") })
	return func() error { return nodes(w, s, done((*servers.Server).RestartKeeping)) }, err
}

func command(args ...any) inflictor {
	return func(w *World, s Step) (func() error, error) {
		return nil, nodes(w, s, func(server *servers.Server) error { return do(server, args...) })
	}
}

// clientKill breaks all connections to a server but the nemesis' own.
func clientKill(w *World, s Step) (func() error, error) {
	return nil, nodes(w, s, func(server *servers.Server) error {
		return do(server, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	})
}

// outOfMemory makes a server refuse every write that needs memory.
func outOfMemory(w *World, s Step) (func() error, error) {
	limit := func(bytes string) func(server *servers.Server) error {
		return func(server *servers.Server) error { return do(server, "CONFIG", "SET", "maxmemory", bytes) }
	}
	return func() error { return nodes(w, s, limit("0")) }, nodes(w, s, limit("1"))
}

// clockStep sets a clock forward or back, by 20 ms to 5 s, and back again.
func clockStep(w *World, s Step) (func() error, error) {
	rng := rand.New(rand.NewPCG(s.Chance, 0))
	by := []time.Duration{20, 100, 500, 2000, 5000}[rng.IntN(5)] * time.Millisecond
	if rng.IntN(2) == 0 {
		by = -by
	}
	step := func(d time.Duration) error {
		return nodes(w, s, done(func(server *servers.Server) { server.StepClock(d) }))
	}
	return func() error { return step(-by) }, step(by)
}

// clockRate lets a clock run up to 8 % fast or slow. It is set right at the end.
func clockRate(w *World, s Step) (func() error, error) {
	share := []float64{0.03, 0.08, -0.03, -0.08}[s.Chance%4]
	began := time.Now()
	err := nodes(w, s, done(func(server *servers.Server) { server.ClockRate(share) }))
	return func() error {
		return nodes(w, s, done(func(server *servers.Server) {
			server.ClockRate(0)
			server.StepClock(-time.Duration(share * float64(time.Since(began))))
		}))
	}, err
}

func disconnect(w *World, s Step) (func() error, error) {
	return func() error { return nodes(w, s, done((*servers.Server).Reconnect)) }, nodes(w, s, done((*servers.Server).Disconnect))
}

func do(server *servers.Server, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if err := server.Client().Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%v at %s: %w", args, server.Addr(), err)
	}
	return nil
}

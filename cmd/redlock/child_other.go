//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "os"

// child is a started command. Without process groups only the command itself can be ended, not what it started, and
// there is no asking it to: both ways of ending it are a kill.
type child struct {
	process *os.Process
	events  chan childEvent // the last one says that the command has exited
}

// start starts the command.
func start(c command) (*child, error) {
	p, err := os.StartProcess(c.path, c.args, &os.ProcAttr{Env: c.env, Files: stdio()})
	if err != nil {
		return nil, cannotStart(c.args[0], err)
	}
	ch := &child{process: p, events: make(chan childEvent, 1)}
	go ch.wait()
	return ch, nil
}

// wait ends when the command has exited.
func (ch *child) wait() {
	code := exitFailed
	if s, err := ch.process.Wait(); err == nil {
		code = s.ExitCode()
	}
	ch.events <- childEvent{exited: true, status: status{code: code}}
}

// signal forwards what redlock was told. An interrupt reaches every process of a console by itself.
func (ch *child) signal(os.Signal) error { return nil }
func (ch *child) terminate() error       { return ch.process.Kill() }
func (ch *child) kill() error            { return ch.process.Kill() }
func (ch *child) proceed() error         { return nil }

func (ch *child) gone() bool { return true }

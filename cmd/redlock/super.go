package main

import (
	"os"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

const (
	pollGroup = 10 * time.Millisecond // how often to see whether the group is gone, once its leader is
	pollLease = time.Second           // timers stand still while the machine is suspended, deadlines do not
	reKill    = 50 * time.Millisecond
	giveUp    = 10 * time.Second // how long to wait for processes that KILL does not end, after a loss
)

// supervisor runs alongside a command until its whole process group has ended, and sees to it that this is before the
// lock's deadline.
type supervisor struct {
	lock    *redlock.Lock // set by run, then read-only, like the fields down to say
	child   *child
	term    *terminal
	signals <-chan os.Signal
	grace   time.Duration
	reason  func() string // why the lock is not renewed
	say     *speaker

	exited   bool // the command itself; processes of its group may be left
	exitedAt time.Time
	status   status
	ended    bool      // not by itself: its lock had run out or was about to
	asked    bool      // TERM was sent for the deadline that is ahead now
	killedAt time.Time // when KILL was first sent
	cleaning bool      // TERM was sent to what the command left behind
}

// watch returns once the whole group has ended, or cannot be ended after a loss.
func (s *supervisor) watch() {
	s.term.begin(s.child)
	defer s.term.takeBack(s.child)
	lost := s.lock.Lost()
	timer := time.NewTimer(pollLease)
	defer timer.Stop()
	for !s.over() {
		timer.Reset(s.attend())
		select {
		case ev := <-s.child.events:
			s.happened(ev)
		case sig := <-s.signals:
			s.forward(sig)
		case <-lost:
			lost = nil
		case <-timer.C:
		}
	}
}

// over says whether there is nothing left to watch.
func (s *supervisor) over() bool {
	if s.exited && s.child.gone() {
		return true
	}
	if !s.killedAt.IsZero() && time.Since(s.killedAt) > giveUp && s.lock.Err() != nil {
		s.say.f("KILL has not ended all processes of the command in %v; they are without a lock", giveUp)
		return true
	}
	return false
}

// step is what is done to a process group. Each includes those before it.
type step int

const (
	let  step = iota // go on
	ask              // TERM
	kill             // KILL
)

// due says what the time that is left until the deadline asks for, and when to look again. A renewal moves the
// deadline, so it is asked anew each time.
//
//	-------- let --------|------- TERM -------|--- KILL ---|
//	                  grace               grace/3       deadline
func due(left, grace time.Duration) (step, time.Duration) {
	switch last := grace / 3; {
	case left > grace:
		return let, min(left-grace, pollLease)
	case left > last:
		return ask, min(left-last, pollLease)
	}
	return kill, reKill
}

// attend does what is due and returns when to look again.
func (s *supervisor) attend() time.Duration {
	// 1. The lock: what is it worth at this moment?
	left := time.Until(s.lock.ValidUntil())
	next, wait := due(left, s.grace)

	// 2. What the command left behind must not work on without it: the lock will be given back, and whoever is next
	// may meet them. A whole grace from the command's exit on, as far as the lock lasts.
	if s.exited {
		wait = min(wait, pollGroup)
		if next == let {
			s.clean()
			return wait
		}
	}

	// 3. The deadline.
	switch next {
	case let:
		s.asked = false
	case ask:
		s.terminate(left)
	case kill:
		s.kill(left)
	}
	return wait
}

// terminate asks the group to end while there is still time.
func (s *supervisor) terminate(left time.Duration) {
	if s.asked {
		return
	}
	s.asked = true
	s.ended = s.ended || !s.exited
	s.say.f("TERM to the command, its lock ends in %v: %s", left.Round(time.Millisecond), s.reason())
	s.check(s.child.terminate())
	_ = s.child.proceed() // a stopped one could not end
}

// kill ends the group. At an earlier loss TERM comes with it, so that a process which ends at once can still say so.
func (s *supervisor) kill(left time.Duration) {
	first := s.killedAt.IsZero()
	if first {
		s.killedAt = time.Now()
		s.ended = s.ended || !s.exited
	}
	if !s.asked {
		s.asked = true
		s.check(s.child.terminate())
	}
	err := s.child.kill()
	switch lost := s.lock.Err(); {
	case !first:
	case lost != nil:
		s.say.f("KILL to the command: %s", reasonText(lost))
	default:
		s.say.f("KILL to the command, its lock ends in %v", left.Round(time.Millisecond))
	}
	if first {
		s.check(err)
	}
}

// clean ends what is left of the group after the command has exited by itself.
func (s *supervisor) clean() {
	if !s.cleaning {
		s.cleaning = true
		s.say.f("the command has exited and left processes behind: TERM to them, KILL in %v", s.grace)
		s.check(s.child.terminate())
		_ = s.child.proceed()
	}
	if time.Since(s.exitedAt) >= s.grace {
		_ = s.child.kill()
	}
}

// check says that a signal could not be sent. To some processes only is no error: the rest is seen by gone.
func (s *supervisor) check(err error) {
	if err != nil {
		s.say.f("cannot signal the command: %v", err)
	}
}

// happened takes note of what the command did.
func (s *supervisor) happened(ev childEvent) {
	if ev.exited {
		s.exited, s.exitedAt, s.status = true, time.Now(), ev.status
		s.term.takeBack(s.child)
		return
	}
	suspend, proceed := s.term.stopped(s.child, ev.stopped)
	if suspend {
		s.say.f("the command is stopped, and so is the renewal of its lock: go on within %v",
			time.Until(s.lock.ValidUntil()).Round(time.Second))
		s.term.suspend(s.child)
		// Back again. The command stays stopped if it has no lock any more, and attend kills it.
		if proceed = s.lock.Err() == nil; proceed {
			s.term.give(s.child)
		}
	}
	if proceed {
		_ = s.child.proceed()
	}
}

// forward hands a signal on to the whole group. A Ctrl-C that the terminal sent to the command's group did not come
// here, so nothing is sent twice.
func (s *supervisor) forward(sig os.Signal) {
	if isContinue(sig) && s.lock.Err() != nil {
		return // it would go on without a lock
	}
	s.check(s.child.signal(sig))
}

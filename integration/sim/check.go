package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed71a1c8e3/redlock"
)

// Violation is a promise that was broken.
type Violation struct {
	Seed uint64
	Rule string
	At   time.Duration // virtual, since the schedule began
	Text string
}

func (v Violation) String() string {
	return fmt.Sprintf("seed %d: %s at %v: %s", v.Seed, v.Rule, v.At, v.Text)
}

// The rules.
const (
	ruleOwners  = "two owners"
	ruleFence   = "fence does not rise"
	ruleHanded  = "handed out, but not valid"
	ruleTold    = "loss not told by the deadline"
	ruleCause   = "loss without a cause"
	ruleRefused = "refused without a cause"
	ruleLeft    = "left behind"
	ruleBack    = "valid again"
	ruleSuspend = "valid after a suspension longer than its TTL"
	ruleVouched = "valid, but a majority does not vouch for it"
	ruleCarried = "handed out with a fence that too few nodes carry"
	ruleKept    = "a fence that later owners may miss"
)

// checker sees what no client can see: all handles at one moment.
type checker struct {
	w *world

	mu     sync.Mutex // guards the fields below
	held   map[*hold]bool
	last   map[string]*hold          // by resource: who got it last
	loose  bool                      // the library has said that only clocks keep fences in order
	copies map[string]bool           // tokens that the network has replayed
	seen   map[suspect]time.Duration // since when a key is there that nobody wants
	found  []Violation
}

// hold is a handle in somebody's hands.
type hold struct {
	*redlock.Lock
	c         *client
	resources []string
	began     time.Duration // when the call began
	got       time.Duration // when it returned
	fence     uint64
	missed    int64 // what the machine's clocks had missed then
	ended     bool  // it was given back, or its process is gone
	late      bool  // its lateness was reported
	over      bool  // its time was up when somebody looked
	busy      bool  // its caller was in Extend when it was lost
	limited   bool  // its caller has set a limit
}

func newChecker(w *world) *checker {
	return &checker{w: w, held: map[*hold]bool{}, last: map[string]*hold{}, copies: map[string]bool{}, seen: map[suspect]time.Duration{}}
}

func (k *checker) violate(rule, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	k.w.logf("VIOLATION %s: %s", rule, text)
	k.found = append(k.found, Violation{Seed: k.w.plan.Seed, Rule: rule, At: k.w.now(), Text: text})
	k.w.stop()
}

// report is violate for callers that do not hold k.mu.
func (k *checker) report(rule, format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.violate(rule, format, args...)
}

// clouded says whether the machine's clocks have stood still since the lock was asked for: until it has learned of that it
// believes in its lock for too long, and says so in its documentation.
func (h *hold) clouded() bool {
	_, paused := h.c.machine.since()
	return h.began < paused
}

// corrected says whether the pool has put its clocks forward since: by that much its locks ended earlier, at once. It also
// does so where nobody can tell whose clock went wrong.
func (h *hold) corrected() bool { return h.c.machine.missed.Load() > h.missed }

// valid says whether the holder has a right to believe in its lock, without any effect on it.
func (h *hold) valid(now time.Time) bool {
	return !h.ended && !h.clouded() && h.ValidUntil().After(now)
}

func (h *hold) String() string {
	return fmt.Sprintf("%s %s fence %d (asked %v, got %v, valid for %v)", h.c.name, strings.Join(h.resources, "+"), h.fence, h.began, h.got,
		time.Until(h.ValidUntil()))
}

// took notes a lock at the moment in which it was handed out.
func (k *checker) took(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.w.stats.Acquired++
	h.got = k.w.now()
	h.missed = h.c.machine.missed.Load()
	h.fence = h.Fence()
	h.resources = h.Resources()
	k.w.logf("%s got %v fence %d token %.6s", h.c.name, h.resources, h.fence, h.Token())
	disturbed, _ := h.c.machine.since()
	if !h.ValidUntil().After(now) && disturbed != h.got && !h.clouded() {
		k.violate(ruleHanded, "%v", h)
	}
	k.overlaps(h, now)
	k.vouched(h, now)
	k.carried(h)
	for _, r := range h.resources {
		if before := k.last[r]; before != nil && !k.loose && h.fence <= before.fence {
			k.violate(ruleFence, "%v after %v", h, before)
		}
		k.last[r] = h
	}
	k.held[h] = true
}

func (k *checker) overlaps(h *hold, now time.Time) {
	if !h.valid(now) {
		return
	}
	for other := range k.held {
		if other == h || !other.valid(now) {
			continue
		}
		for _, r := range h.resources {
			if slices.Contains(other.resources, r) {
				k.violate(ruleOwners, "%q: %v and %v", r, other, h)
				return
			}
		}
	}
}

// holds says whether a client has a lock that is old enough to be renewed.
func (k *checker) holds(c *client) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h := range k.held {
		if h.c == c && k.w.now()-h.began > k.w.plan.NodeTimeout {
			return true
		}
	}
	return false
}

// gave notes that the holder does not count on its lock any more.
func (k *checker) gave(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h.ended = true
	delete(k.held, h)
	k.w.logf("%s gives back %v fence %d", h.c.name, h.resources, h.fence)
}

// buried notes that a process is gone with all that it held.
func (k *checker) buried(c *client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for h := range k.held {
		if h.c == c {
			h.ended = true
			delete(k.held, h)
		}
	}
}

// watch looks many times within a TTL: what is wrong is often so for a moment only.
func (k *checker) watch() {
	r := k.w.rng(actorChecker, 0)
	for sleep(k.w.ctx, between(r, 0, k.w.plan.TTL/20)) {
		k.look()
	}
}

// look checks everything at some moment.
func (k *checker) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for h := range k.held {
		k.overlaps(h, now)
		k.told(h, now)
		k.back(h, now)
		k.vouched(h, now)
	}
	k.kept()
	k.suspects()
}

// back checks that a lock whose time was up never counts again. It is not asked with Valid, which would end it.
func (k *checker) back(h *hold, now time.Time) {
	if h.ended || h.clouded() {
		return
	}
	valid := h.ValidUntil().After(now)
	if valid && h.over {
		k.violate(ruleBack, "%v", h)
	}
	h.over = !valid
}

// told checks that a holder whose time is up has been told, within a tick of the end or of its process going on.
func (k *checker) told(h *hold, now time.Time) {
	if h.ended || h.late || h.clouded() || h.c.machine.standing() > 0 {
		return
	}
	select {
	case <-h.Lost():
		return
	default:
	}
	over := k.w.now() - max(k.w.now()+h.ValidUntil().Sub(now), k.since(h))
	if over > k.tick() {
		h.late = true
		k.violate(ruleTold, "%v, over for %v", h, over)
	}
}

// since is when the holder's process last went on.
func (k *checker) since(h *hold) time.Duration {
	disturbed, paused := h.c.machine.since()
	return max(disturbed, paused)
}

// tick is how late the end of a lock is noticed by a process that was not there in time: a tick of the pool's longest TTL.
func (k *checker) tick() time.Duration {
	return max(time.Millisecond, min(time.Second, k.w.plan.TTL/10)) + 2*time.Millisecond
}

// lost checks a loss at the moment in which the holder was told.
func (k *checker) lost(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.ended {
		return
	}
	k.w.stats.Lost++
	k.w.logf("%s lost %v fence %d: %v", h.c.name, h.resources, h.fence, h.Err())
	now := k.w.now()
	disturbed := k.since(h)
	allowed := time.Millisecond
	if now-disturbed < 2*k.tick() {
		allowed = k.tick()
	}
	if late := now - max(now+time.Until(h.ValidUntil()), disturbed); late > allowed && !h.late && !h.busy && !h.clouded() && !h.corrected() {
		k.violate(ruleTold, "%v, told %v late", h, late)
	}
	if k.w.plan.gentle() && !k.mayLose(h) {
		k.violate(ruleCause, "%v: %v", h, h.Err())
	}
}

// mayLose says whether a lock may be lost in a schedule in which none should be: it has an end of its own, its machine's
// clocks were put right, or rivals have kept the nodes busy, be it until a moment ago, that it needed in place of those that
// were taken away.
func (k *checker) mayLose(h *hold) bool {
	err := h.Err()
	busy := strings.Contains(err.Error(), "is not ours there any more") || strings.Contains(err.Error(), "did not hold the key")
	return errors.Is(err, redlock.ErrMaxHold) || strings.Contains(err.Error(), "lease is over") || h.corrected() ||
		(k.w.plan.Class == clocks || !errors.Is(err, redlock.ErrHeld)) && busy
}

// slept checks that a suspension which was longer than the TTL has ended all locks of a machine.
func (k *checker) slept(c *client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for h := range k.held {
		if h.c == c && !h.clouded() && h.ValidUntil().After(now) {
			k.violate(ruleSuspend, "%v", h)
		}
	}
}

// clocksOnly notes that the library has warned that only clocks keep fences in order from here on.
func (k *checker) clocksOnly() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loose = true
	k.w.stats.Loose++
}

// replayed notes whose requests the network has sent again: their keys may come back, and die by their TTL.
func (k *checker) replayed(packet [][]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, args := range packet {
		for _, a := range args {
			k.copies[a] = true
		}
	}
}

package redlock

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/seed71a1c8e3/redlock/internal/seam"
)

// How long a lock may be believed in:
//
//	start                          now                        deadline          start + TTL
//	  |------- elapsed -------------|------- remaining ----------|--- allowance ---|
//	  |                                                          |                 the first node may forget the key
//	  read before the first byte leaves                          validity = TTL - allowance
//
// start is read on our clock before any node starts counting, so every node forgets the key later than start + TTL of
// its own clock; the allowance covers clocks that differ in rate. Instants are compared, never added to: sums overflow
// at TTLs of centuries.

// instant is a moment on two clocks, each since the pool's epoch: the monotonic one, which may stand still while the
// machine is suspended, and one that counts suspension (Linux: CLOCK_BOOTTIME; elsewhere the wall clock).
type instant struct {
	mono, boot time.Duration
}

// elapsed is the time from a to b by whichever clock saw more of it, so that a suspend or a stepped clock can only
// shorten a lock.
func elapsed(a, b instant) time.Duration {
	return max(b.mono-a.mono, b.boot-a.boot)
}

// clock reads instants.
type clock struct {
	epoch time.Time            // set by newClock, then read-only
	since func() time.Duration // the suspended-time clock, since the epoch

	missed *atomic.Int64 // what both have missed, by most of the nodes' clocks
}

func newClock() clock {
	if seam.Clock != nil {
		simulated := seam.Clock()
		return clock{epoch: time.Now(), since: simulated.Boot, missed: simulated.Missed}
	}
	return clock{epoch: time.Now(), since: newBootClock(), missed: new(atomic.Int64)}
}

// correct puts the clock forward by what it missed while the machine was paused: everything that is measured from before
// to after the pause is longer by that, at once.
func (c clock) correct(missed time.Duration) { c.missed.Add(int64(min(missed, forever))) }

func (c clock) now() instant {
	return instant{mono: c.mono(), boot: c.since() + time.Duration(c.missed.Load())}
}

// pace is now on clocks that nobody sets: what nodes' clocks are compared with.
func (c clock) pace() instant {
	if bootIsSet {
		m := c.mono()
		return instant{mono: m, boot: m}
	}
	return c.now()
}

// mono is the cheap half of now, for what only paces us: timeouts, pauses, probes. What decides over ownership asks now.
func (c clock) mono() time.Duration { return time.Since(c.epoch) + time.Duration(c.missed.Load()) }

// drift is what two clocks may differ over an interval: a share of it, plus a floor for the nodes' millisecond
// granularity.
type drift struct {
	factor float64
	floor  time.Duration
}

// allowance is the time taken off an interval, rounded up; never more than the largest duration.
func (d drift) allowance(interval time.Duration) time.Duration {
	share := math.Ceil(float64(interval) * d.factor)
	if share >= float64(math.MaxInt64-d.floor) {
		return math.MaxInt64
	}
	return time.Duration(share) + d.floor
}

// validity is how long after start a lock with this TTL may be believed in; zero or less means never.
func (d drift) validity(ttl time.Duration) time.Duration {
	return ttl - d.allowance(ttl)
}

// smallestTTL is the shortest TTL of whole milliseconds of which at least a millisecond of validity is left.
func (d drift) smallestTTL() time.Duration {
	need := time.Millisecond + d.floor
	ttl := time.Duration(math.Ceil(float64(need)/(1-d.factor)/float64(time.Millisecond))) * time.Millisecond
	for d.validity(ttl) < time.Millisecond { // rounding of the division above
		ttl += time.Millisecond
	}
	return ttl
}

// millis is d in milliseconds as the nodes count them, rounded up: a key that lives longer is safe, one that dies
// earlier is not.
func millis(d time.Duration) int64 {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return int64(ms)
}

// wholeMillis is d as the nodes will count it.
func wholeMillis(d time.Duration) time.Duration {
	return time.Duration(min(millis(d), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// remaining is how much of a validity is left at now; zero or less means none.
func remaining(validity time.Duration, start, now instant) time.Duration {
	return validity - elapsed(start, now)
}

// sample is one reading of a node's clock: its time, and ours right before the question and right after the answer.
type sample struct {
	micros       int64 // microseconds since 1970; 0: no reading
	asked, heard instant
}

func (s sample) width() time.Duration { return elapsed(s.asked, s.heard) }

// clockGrain is what readings of perfect clocks may differ by.
const clockGrain = time.Millisecond

// deviation bounds by how much the node's clock went ahead of ours from a to b; negative: fell behind.
//
//	ours      a.asked  a.heard                         b.asked  b.heard
//	             |--------|                               |--------|
//	                      |------------- least -----------|
//	             |------------------------ most --------------------|
//	theirs          a.micros ------------------------------- b.micros
func deviation(a, b sample) (low, high time.Duration) {
	theirs := time.Duration(b.micros-a.micros) * time.Microsecond
	return theirs - elapsed(a.asked, b.heard), theirs - elapsed(a.heard, b.asked)
}

// jump is the deviation from a to b that the allowance and the round trips do not explain; 0 if they explain it. ok is
// false where b's round trip is wider than the allowance: it says nothing.
func (d drift) jump(a, b sample) (j time.Duration, ok bool) {
	allowance := d.allowance(elapsed(a.asked, b.heard)) + clockGrain
	if b.width() > allowance {
		return 0, false
	}
	low, high := deviation(a, b)
	switch {
	case low > allowance:
		return low, true
	case -high > allowance:
		return high, true
	}
	return 0, true
}

// rate is how much faster the node's clock ran than ours from a to b, as a share, and by how much that may be wrong. ok
// is false where the interval is too short to tell.
func rate(a, b sample) (share, bound float64, ok bool) {
	ours := (elapsed(a.asked, b.asked) + elapsed(a.heard, b.heard)) / 2
	if a.micros == 0 || ours < time.Second {
		return 0, 0, false
	}
	theirs := time.Duration(b.micros-a.micros) * time.Microsecond
	return float64(theirs-ours) / float64(ours), float64(a.width()+b.width()) / 2 / float64(ours), true
}

// baselines are earlier readings of one node's clock that later ones are compared with: some of the last moments, which
// show steps, and some of a while ago, which show a rate.
type baselines struct {
	near, far ring
}

const (
	ringSize    = 6
	farBaseline = 30 * time.Second // how far back they go, at most
)

// ring holds the last readings, the newest first.
type ring [ringSize]sample

func (r *ring) push(s sample) {
	copy(r[1:], r[:])
	r[0] = s
}

// compare is the largest jump since a baseline, and how old that is; 0 where none shows one. A reading older than the
// guard is no baseline.
func (b *baselines) compare(d drift, s sample, guard time.Duration) (jump, age time.Duration) {
	b.each(s, guard, func(base *sample, old time.Duration) {
		if j, _ := d.jump(*base, s); abs(j) > abs(jump) {
			jump, age = j, old
		}
	})
	return jump, age
}

// each goes through the baselines that are no older than the guard.
func (b *baselines) each(s sample, guard time.Duration, f func(base *sample, age time.Duration)) {
	for _, r := range [...]*ring{&b.near, &b.far} {
		for i := range r {
			if r[i].micros == 0 {
				break
			}
			if old := elapsed(r[i].heard, s.asked); old <= guard {
				f(&r[i], old)
			}
		}
	}
}

// since bounds the deviation since the baseline whose age is nearest to the given one, but not much less: what happened
// in that time must show. Where it is much older, longer is by how much. ok is false where there is none.
func (b *baselines) since(s sample, age, guard time.Duration) (low, high, longer time.Duration, ok bool) {
	var best *sample
	var off time.Duration
	b.each(s, guard, func(base *sample, old time.Duration) {
		if old >= age-age/4 && (best == nil || abs(old-age) < off) {
			best, off = base, abs(old-age)
		}
	})
	if best == nil {
		return 0, 0, 0, false
	}
	low, high = deviation(*best, s)
	if old := elapsed(best.heard, s.asked); old > age+age/2 {
		longer = old - age
	}
	return low, high, longer, true
}

// keep takes a reading as a baseline where the last has grown old; one with a wide round trip only where there is
// nothing better.
func (b *baselines) keep(d drift, s sample, idle, guard time.Duration) {
	last := &b.near[0]
	if last.micros != 0 && elapsed(last.heard, s.asked) <= guard && s.width() > d.allowance(idle)+clockGrain {
		return
	}
	if last.micros == 0 || elapsed(last.heard, s.asked) >= idle/4 {
		b.near.push(s)
	}
	if last := &b.far[0]; last.micros == 0 || elapsed(last.heard, s.asked) >= min(guard/2, farBaseline)/(ringSize-1) {
		b.far.push(s)
	}
}

// oldest is the oldest baseline within the guard; its micros are 0 if there is none.
func (b *baselines) oldest(s sample, guard time.Duration) (oldest sample) {
	var age time.Duration
	b.each(s, guard, func(base *sample, old time.Duration) {
		if old >= age {
			oldest, age = *base, old
		}
	})
	return oldest
}

func abs(d time.Duration) time.Duration { return max(d, -d) }

// serverClock is what we know of a node's clock: its newest reading, and when we asked for it.
type serverClock struct {
	micros int64         // server time, microseconds since 1970; 0 while unknown
	asked  time.Duration // monotonic since the epoch
}

// latestSecond is the last second of the node's clock at which a request that starts at start and is waited for until
// timeout may be applied: start + timeout, rounded up, plus one second for a rate that differs and for what the
// reading's own round trip hides.
func (s serverClock) latestSecond(start, timeout time.Duration) int64 {
	at := s.micros + int64((start-s.asked+timeout)/time.Microsecond)
	return (at+999_999)/1_000_000 + 1
}

// untilPast is how long after now the node's clock will have left the given second, by its newest reading; the true
// wait may be longer, so it is checked against the node's own answer.
func (s serverClock) untilPast(second int64, now time.Duration) time.Duration {
	at := s.micros + int64((now-s.asked)/time.Microsecond)
	left := (second+1)*1_000_000 - at
	if left <= 0 {
		return 0
	}
	if left > int64(math.MaxInt64/time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(left) * time.Microsecond
}

const forever = 100 * 365 * 24 * time.Hour

package redlock

import (
	"math"
	"time"
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
}

func newClock() clock {
	return clock{epoch: time.Now(), since: newBootClock()}
}

func (c clock) now() instant {
	return instant{mono: c.mono(), boot: c.since()}
}

// mono is the cheap half of now, for what only paces us: timeouts, pauses, probes. What decides over ownership asks now.
func (c clock) mono() time.Duration { return time.Since(c.epoch) }

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

// remaining is how much of a validity is left at now; zero or less means none.
func remaining(validity time.Duration, start, now instant) time.Duration {
	return validity - elapsed(start, now)
}

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

package redlock

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Steady nodes. A node that lost its memory must have no vote until every lock that it forgot has run out. Its marker
// lies in the hash that holds its fence counters, so both are lost together; acquire and renew compare it with the one
// string of a steady node in its present run.
//
//	marker missing, or of another run --(compare and set)--> run id + nonce --(the same nonce for a guard)--> steady
//	steady --(its clock stepped)--> run id + nonce
//
// A restart, a flush, an old snapshot and a late write all change the string, so the last step fails where anything of
// that kind came in between. The marker holds no time: a stepped clock would end the guard.

// keeper is what the nodes of a pool know of each other's memory and clocks.
type keeper struct {
	settings string        // set by newKeeper, then read-only, like the fields below
	guard    time.Duration // 0: every node that answers is steady, and nothing is looked after
	watch    time.Duration // how long a nonce is watched: the guard by the slowest clock
	drift    drift
	need     int // K
	majority int
	timeout  time.Duration // the node timeout
	clock    clock
	events   *events
	wake     func()                  // wakes every node
	jumped   func()                  // told when our own clock was put right, without mu
	begun    atomic.Bool             // an acquire waits for the nodes: they connect without being asked
	ready    atomic.Bool             // settled is closed
	settled  chan struct{}           // closed once the first acquire need not wait any more
	turn     atomic.Uint64           // counts what every node has to look at
	era      atomic.Uint64           // counts the inquiries that are over
	barred   atomic.Int64            // no new locks before this instant, monotonic since the epoch
	inquiry  atomic.Pointer[inquiry] // into whose clock it is that went wrong; nil while there is none
	rebase   []atomic.Bool           // by node: its clock is to be compared with new readings
	mu       sync.Mutex              // guards the fields below
	nodes    []memory
	surveys  map[int]*survey // by the node that is to be healed
	allNew   uint64          // the turn by which all nodes were known to be new; 0: they are not
}

// memory is what is known of one node.
type memory struct {
	name    string
	phase   memoryPhase
	run     string        // run id of its last connection
	until   time.Duration // watching: when the guard is over; monotonic since the epoch
	old     time.Duration // from when on its process has run for longer than the guard
	reason  error         // unfit: why
	looked  uint64        // fresh: the turn in which the last look began that showed its nonce
	alone   bool          // when its watch began no majority could be steady
	first   bool          // fresh: it may become steady at once
	stepped bool          // its clock stepped: its vote is to be taken
	told    time.Duration // until when another step of its clock is no news
	held    time.Duration // until when this pool does not count it, whatever its marker says
	heldFor error
}

type memoryPhase uint8

const (
	unseen   memoryPhase = iota // not connected yet
	away                        // does not answer
	unfit                       // must not vote: a replica, a cluster node, other settings, ...
	watching                    // has a nonce
	fresh                       // has a nonce, and its process never had a marker before
	steady
)

// survey collects the highest counters of steady nodes, for one that lost its own.
type survey struct {
	opened time.Duration
	top    map[string]string
	from   map[int]bool
}

func newKeeper(nodes []string, need int, o keeperOptions) *keeper {
	k := &keeper{settings: settingsOf(len(nodes), need, o.guard), guard: o.guard, drift: o.drift,
		need: need, majority: o.majority, timeout: o.timeout, clock: o.clock, events: o.events,
		settled: make(chan struct{}), surveys: map[int]*survey{}, rebase: make([]atomic.Bool, len(nodes)), wake: func() {}, jumped: func() {}}
	if k.watch = o.guard + o.drift.allowance(o.guard); k.watch < 0 {
		k.watch = forever
	}
	for _, name := range nodes {
		k.nodes = append(k.nodes, memory{name: name})
	}
	return k
}

// keeperOptions are a pool's options as far as its nodes' memory is concerned.
type keeperOptions struct {
	majority       int
	guard, timeout time.Duration
	drift          drift
	clock          clock
	events         *events
}

// idle is how old a reading of a node's clock may grow: a reading older than the guard could not be compared with.
func (k *keeper) idle() time.Duration {
	if k.guard == 0 {
		return idleReading
	}
	return max(minIdleReading, min(idleReading, k.guard/3))
}

// report notes a change of what is known of a node, and wakes those who wait for it.
func (k *keeper) report(i int, change func(*memory)) {
	k.mu.Lock()
	before := k.nodes[i]
	change(&k.nodes[i])
	after := k.nodes[i]
	if after.phase != watching && after.phase != fresh {
		delete(k.surveys, i)
	}
	if before.phase == unseen && after.phase != unseen {
		k.acquaintedLocked()
	}
	settled := k.settledLocked()
	k.mu.Unlock()
	if settled {
		k.letGo()
	}
	if before.phase != after.phase || before.run != after.run {
		k.call()
	}
}

// letGo ends the wait of first acquires, for good.
func (k *keeper) letGo() {
	if k.ready.CompareAndSwap(false, true) {
		close(k.settled)
	}
}

// call has every node look at what concerns it.
func (k *keeper) call() {
	if k.guard > 0 {
		k.turn.Add(1)
		k.wake()
	}
}

// settledLocked says whether the first acquire may go: enough nodes can vote, or no more will soon. k.mu must be held.
func (k *keeper) settledLocked() bool {
	steadies, news, seen := 0, 0, 0
	for _, m := range k.nodes {
		switch m.phase {
		case steady:
			steadies++
		case fresh:
			news++
		}
		if m.phase != unseen {
			seen++
		}
	}
	if steadies >= k.need {
		return true
	}
	return seen == len(k.nodes) && !(news > 0 && steadies+news == len(k.nodes) && k.oldEnoughLocked())
}

func (k *keeper) oldEnough() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.oldEnoughLocked()
}

// oldEnoughLocked says whether every process has run for longer than the guard. k.mu must be held.
func (k *keeper) oldEnoughLocked() bool {
	now := k.clock.mono()
	for _, m := range k.nodes {
		if m.old > now {
			return false
		}
	}
	return true
}

// firstUse says whether node i may become steady at once: all nodes were new at one moment, and had run for longer than
// the guard, so there is no lock that they could have forgotten. Nodes that were found new one after the other could
// have been used, and replaced, in between: so once all have been seen, all are looked at again, and only what has not
// changed counts. It is decided once, for the nonces that they all had.
func (k *keeper) firstUse(i int) (now, look bool) {
	k.mu.Lock()
	if !k.allNewLocked() || !k.oldEnoughLocked() {
		k.allNew = 0
		defer k.mu.Unlock()
		return k.nodes[i].first, false
	}
	begin := k.allNew == 0
	if begin {
		k.allNew = k.turn.Add(1) // every look so far began before
	}
	all := true
	for _, m := range k.nodes {
		all = all && m.looked >= k.allNew
	}
	for j := range k.nodes {
		begin = begin || all && !k.nodes[j].first
		k.nodes[j].first = k.nodes[j].first || all
	}
	now, look = k.nodes[i].first, k.nodes[i].looked < k.allNew
	k.mu.Unlock()
	if begin {
		k.call()
	}
	return now, look
}

// twins names the other nodes that are the same server as node i.
func (k *keeper) twins(i int) (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for j, m := range k.nodes {
		if j != i && m.run != "" && m.run == k.nodes[i].run {
			names = append(names, m.name)
		}
	}
	return names
}

// voteless is why node i has no vote now; nil if nothing is known against it.
func (k *keeper) voteless(i int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.nodes[i]
	now := k.clock.mono()
	switch {
	case m.heldFor != nil && now < m.held:
		return reason(m.heldFor.Error() + "; no vote for another " + round10ms(m.held-now).String())
	case m.phase == unfit:
		return m.reason
	case m.phase == fresh && k.allNewLocked():
		left := m.until
		if old := k.oldestLocked(); old < left {
			left = old
		}
		return reason("its server has just been started: no vote for another " + round10ms(left-now).String() +
			" (a restart guard; for tests on fresh servers see WithRestartGuard)")
	case (m.phase == watching || m.phase == fresh) && m.until <= now:
		return reasonCounters
	case m.phase == watching, m.phase == fresh:
		return reason("it restarted, lost its data or stepped its clock: no vote for another " + round10ms(m.until-now).String())
	}
	return nil
}

// isSteady says whether node i has a vote, as far as this pool knows.
func (k *keeper) isSteady(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes[i].phase == steady && k.clock.mono() >= k.nodes[i].held
}

func (k *keeper) allNewLocked() bool {
	for _, m := range k.nodes {
		if m.phase != fresh {
			return false
		}
	}
	return true
}

// oldestLocked is when the last process will have run for longer than the guard. k.mu must be held.
func (k *keeper) oldestLocked() (at time.Duration) {
	for _, m := range k.nodes {
		at = max(at, m.old)
	}
	return at
}

// round10ms makes a remaining time readable; at least 10 ms.
func round10ms(d time.Duration) time.Duration {
	return max(10*time.Millisecond, (d + 10*time.Millisecond - 1).Truncate(10*time.Millisecond))
}

// openSurvey has the steady nodes tell their counters to node i; nothing where that is under way.
func (k *keeper) openSurvey(i int) {
	k.mu.Lock()
	opened := k.surveys[i] == nil
	if opened {
		k.surveys[i] = &survey{opened: k.clock.mono(), top: map[string]string{}, from: map[int]bool{}}
	}
	k.mu.Unlock()
	if opened {
		k.call()
	}
}

// acquaintedLocked looks once more at watches that began while some nodes had not been seen yet: now that one more has
// been, it may be plain that no majority was steady. Only then, for later on what is known of the others is older than
// the watch. k.mu must be held.
func (k *keeper) acquaintedLocked() {
	if k.couldBeSteadyLocked() {
		return
	}
	for i := range k.nodes {
		if m := &k.nodes[i]; m.phase == watching || m.phase == fresh {
			m.alone = true
		}
	}
}

// couldBeSteady says whether a majority may be steady, seen or unseen.
func (k *keeper) couldBeSteady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.couldBeSteadyLocked()
}

// couldBeSteadyLocked is couldBeSteady for who holds k.mu.
func (k *keeper) couldBeSteadyLocked() bool {
	could := 0
	for _, m := range k.nodes {
		if m.phase == steady || m.phase == away || m.phase == unseen {
			could++
		}
	}
	return could >= k.majority
}

// dropSurvey forgets what was collected for node i.
func (k *keeper) dropSurvey(i int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.surveys, i)
}

// surveyed says whether node i is asked for its counters: only a steady one is.
func (k *keeper) surveyed(i int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.mono()
	for _, s := range k.surveys {
		if k.nodes[i].phase == steady && now >= k.nodes[i].held && !s.from[i] {
			return true
		}
	}
	return false
}

// tell adds the counters of node i to the surveys that were opened before they were read.
func (k *keeper) tell(i int, read time.Duration, counters map[string]string) {
	k.mu.Lock()
	for _, s := range k.surveys {
		if s.opened > read || s.from[i] {
			continue
		}
		s.from[i] = true
		for stripe, c := range counters {
			s.top[stripe] = max(s.top[stripe], c)
		}
	}
	k.mu.Unlock()
	k.call()
}

// surveyFor returns the counters that node i is to be raised to, once a majority of steady nodes has told theirs. Where
// no majority is steady, those that are have to do: short is true, and only the clocks order the fences from there on.
func (k *keeper) surveyFor(i int, long bool) (top map[string]string, short, done bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.surveys[i]
	if s == nil {
		return nil, false, false
	}
	steadies, told, reached := 0, 0, 0
	for j, m := range k.nodes {
		if m.phase != away && m.phase != unseen {
			reached++
		}
		if m.phase == steady {
			steadies++
			if s.from[j] {
				told++
			}
		}
	}
	enough := len(s.from) >= k.majority
	// It may be we who are cut off: without a majority in reach nothing is healed, and where those that are missing could
	// make up a steady majority, another client that reaches them has a guard's time to do it.
	cutOff := reached < k.majority || steadies+len(k.nodes)-reached >= k.majority && !long && !k.nodes[i].alone
	if !enough && (cutOff || steadies >= k.majority || told < steadies && k.clock.mono()-s.opened < 2*k.timeout) {
		return nil, false, false
	}
	delete(k.surveys, i)
	return maps.Clone(s.top), !enough, true
}

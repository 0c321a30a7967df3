package sim

// mutant is one rule of the library taken out. Each text must be there exactly once.
type mutant struct {
	name  string
	edits []edit
	seed  uint64 // of a schedule that convicts it
}

type edit struct{ file, old, new string }

func one(file, old, new string) []edit { return []edit{{file, old, new}} }

const model = "internal/peer/scripts.go" // where scripts are rules of the servers

var mutants = []mutant{
	// How long a lock may be believed in.
	{"no check of the time that an acquire took", one("quorum.go", "if r.verdict == won && left > 0 && why != ErrClosed {", "if r.verdict == won && left > -forever && why != ErrClosed {"), 0},
	{"clock read before the last reply", one("quorum.go", "	now := q.clock.now()\n	left := h.left(now)\n	if r.verdict == won", "	now := start\n	left := h.left(now)\n	if r.verdict == won"), 0},
	{"deadline counted from the reply", one("quorum.go", "		h.phase = held\n", "		h.phase, h.from = held, now\n"), 0},
	{"drift not subtracted", one("options.go", "t.validity = o.drift.validity(t.ttl); t.validity", "t.validity = t.ttl; t.validity"), 0},
	{"time suspended not counted", one("clockdrift.go", "return max(b.mono-a.mono, b.boot-a.boot)", "return b.mono - a.mono"), 0},
	{"deadline by fewer than a majority", one("hold.go", "at := confirmed[majority-1]", "at := confirmed[0]"), 0},
	{"renewal counted after the deadline", one("hold.go", "at.mono > h.from.mono && h.left(now()) > 0 {", "at.mono > h.from.mono {"), 0},
	{"Valid does not ask the clock", one("quorum.go", "if h.phase != held || h.left(now) > 0 {", "if now = (instant{}); h.phase != held || h.left(now) > 0 {"), 0},

	// Votes.
	{"quorum one less", one("redlock.go", "q := &quorum{need: need, majority: majorityOf(len(nodes))", "q := &quorum{need: need - 1, majority: majorityOf(len(nodes)) - 1"), 0},
	{"refused one denial too early", one("round.go", "	case n-r.denied < r.need:", "	case n-r.denied <= r.need:"), 0},
	{"given up one answer too early", one("round.go", "	case n-r.denied-r.none < r.need && n-r.denied-pending >= r.need:", "	case n-r.denied-r.none <= r.need && n-r.denied-pending >= r.need:"), 0},
	{"refill counted as a vote", one("command.go", "return vote{kind: voteRefill, reason: reasonGone}", "return vote{kind: voteGrant}"), 0},
	{"unsteady nodes' votes counted in renewals", one("command.go", "return vote{kind: voteUnsteadyOurs}", "return vote{kind: voteGrant}"), 0},
	{"unsteady nodes grant", one(model, "	if !steady {\n		return number(out, -2)\n	}\n", ""), 0},

	// What is written, and taken back.
	{"token used again by the next attempt", one("redlock.go", "	try := func() (*hold, error) {\n		attempts++\n		return p.quorum.acquire(ctx, t, resources, keys, newToken(t.label))", "	token := newToken(t.label)\n	try := func() (*hold, error) {\n		attempts++\n		return p.quorum.acquire(ctx, t, resources, keys, token)"), 0},
	{"no undo of unanswered nodes", one("quorum.go", "if to[i] = s.asked; s.asked {", "if to[i] = s.has; s.has {"), 0},
	{"written again after Unlock", one("round.go", "	if r.h.phase == dead {\n		return false\n	}\n", ""), 0},
	{"undone before its latest second, and forgotten", one("reach.go", "case e == nil && second > u.latest:", "case e == nil:"), 0},
	{"latest second not checked", one(model, "case now.Unix() > latest:", "case false && now.Unix() > latest:"), 0},
	{"a lost lock is not given back", one("quorum.go", "	h.ended(err)\n	q.giveBack(h, nil)\n", "	h.ended(err)\n"), 0},
	{"release without comparing", one(model, "ok && !v.Foreign && v.S == token {", "ok && !v.Foreign {"), 0},
	{"MultiLock takes what is free", one(model, "			return number(number(array(out, 2), int64(i+1)), left)\n", "			if len(keys) == 1 {\n				return number(number(array(out, 2), int64(i+1)), left)\n			}\n"), 0},

	// Renewals.
	{"heap order wrong", one("watchdog.go", "return h[i].next < h[j].next", "return h[i].next > h[j].next"), 0},
	{"renewed too late", one("watchdog.go", "third := h.ttl / 3", "third := 2 * h.ttl"), 0},

	// Fences.
	{"raised without ownership", one(model, "	missing := false\n	for _, k := range keys {", "	missing := false\n	for _, stripe := range args[5:] {\n		s.Fields[stripe] = max(s.Fields[stripe], fence)\n	}\n	for _, k := range keys {"), 0},
	{"different answers are not raised", one("quorum.go", "	if acquire.verdict != won {\n		h.mu.Unlock()\n		return nil", "	if h.setFence(h.fence); true {\n		h.mu.Unlock()\n		return nil"), 0},
	{"answers above the fence are counted", one("hold.go", "return s.answer > 0 && s.answer <= h.fence && !s.doubt", "return s.answer > 0"), 0},
	{"counters not healed", one("tend.go", "n.heal(t.nonce, steadyMarker, top)", "n.heal(t.nonce, steadyMarker, nil)"), 0},
	{"granted without storing the fence", one(model, "		s.Fields[stripe] = fence\n", "		_ = stripe\n"), 0},

	// Memory.
	{"guard off", one("tend.go", "	case now-t.since >= k.watch && now >= m.held:", "	case now >= m.held:"), 0},
	{"stale run id", one("tend.go", "	t.run = seen.info.run\n", "	if t.run == \"\" {\n		t.run = seen.info.run\n	}\n"), 0},
	{"missing marker taken for a first use", []edit{
		{"tend.go", "	case known:\n", "	case false:\n"},
		{"steady.go", "	if !k.allNewLocked() || !k.oldEnoughLocked() {", "	if !k.oldEnoughLocked() {"},
		{"steady.go", "		all = all && m.looked >= k.allNew\n", "		_ = m\n"}}, 0},
}

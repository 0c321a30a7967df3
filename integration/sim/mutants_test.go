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
	{"no check of the time that an acquire took", one("quorum.go", "if r.verdict == won && left > 0 && why != ErrClosed {", "if r.verdict == won && left > -forever && why != ErrClosed {"), 38},
	{"clock read before the last reply", one("quorum.go", "	now := q.clock.now()\n	left := h.left(now)\n	if r.verdict == won", "	now := start\n	left := h.left(now)\n	if r.verdict == won"), 38},
	{"deadline counted from the reply", one("quorum.go", "		h.phase, h.owned = held, true\n", "		h.phase, h.owned, h.from = held, true, now\n"), 38},
	{"drift not subtracted", one("options.go", "t.validity = o.drift.validity(t.ttl); t.validity", "t.validity = t.ttl; t.validity"), 57},
	{"time suspended not counted", one("clockdrift.go", "return max(b.mono-a.mono, b.boot-a.boot)", "return b.mono - a.mono"), 8},
	{"deadline by fewer than a majority", one("hold.go", "at := confirmed[majority-1]", "at := confirmed[0]"), 3},

	// Votes.
	{"quorum one less", one("redlock.go", "q := &quorum{need: need, majority: majorityOf(len(nodes))", "q := &quorum{need: need - 1, majority: majorityOf(len(nodes)) - 1"), 1},
	{"refused one denial too early", one("round.go", "	case n-r.denied < r.need:", "	case n-r.denied <= r.need:"), 15},
	{"given up one answer too early", one("round.go", "	case n-r.denied-r.none < r.need && n-r.denied-pending >= r.need:", "	case n-r.denied-r.none <= r.need && n-r.denied-pending >= r.need:"), 4},
	{"unsteady nodes grant", one(model, "	if !steady {\n		return number(out, -2)\n	}\n", ""), 2},

	// What is written, and taken back.
	{"token used again by the next attempt", []edit{
		{"quorum.go", "newHold(w.terms, w.resources, w.keys, newToken(w.label), ", "newHold(w.terms, w.resources, w.keys, w.again(), "},
		{"hold.go", "	resources, keys []string\n}\n\n// hold is", "	resources, keys []string\n	used            string\n}\n\nfunc (w *wish) again() string {\n	if w.used == \"\" {\n		w.used = newToken(w.label)\n	}\n	return w.used\n}\n\n// hold is"},
	}, 46},
	{"no undo of unanswered nodes", one("quorum.go", "if to[i] = s.asked; s.asked {", "if to[i] = s.has; s.has {"), 2},
	{"written again after Unlock", one("round.go", "	if r.h.phase == dead {\n		return false\n	}\n", ""), 16},
	{"undone before its latest second", one("reach.go", "case e == nil && second > u.latest:", "case e == nil && second > 0:"), 83},
	{"latest second not checked", one(model, "case now.Unix() > latest:", "case false && now.Unix() > latest:"), 32},
	{"release without comparing", one(model, "ok && !v.Foreign && v.S == token {", "ok && !v.Foreign {"), 1},
	{"MultiLock takes what is free", one(model, "			return number(number(array(out, 2), int64(i+1)), left)\n", "			if len(keys) == 1 {\n				return number(number(array(out, 2), int64(i+1)), left)\n			}\n"), 1},

	// Renewals.
	{"heap order wrong", one("watchdog.go", "return h[i].next < h[j].next", "return h[i].next > h[j].next"), 3},
	{"renewed too late", one("watchdog.go", "third := h.ttl / 3", "third := 2 * h.ttl"), 1},
	{"renewal counted after the deadline", one("hold.go", "at.mono > h.from.mono && h.left(now()) > 0 {", "at.mono > h.from.mono {"), 8},
	{"refill counted as a vote", one("hold.go", "s.at, s.has, s.votes, s.asked, s.took = start, true, false, true, true", "s.at, s.has, s.votes, s.asked, s.took = start, true, true, true, true"), 70},
	{"unsteady nodes vote in renewals", one(model, "	case !steady:\n		return 3\n", ""), 2},
	{"lost lock not given back", one("quorum.go", "	h.ended(err)\n	q.giveBack(h, nil)\n	q.counts.lost", "	h.ended(err)\n	q.counts.lost"), 2},

	// Fences.
	{"different answers are not raised", one("quorum.go", "	if acquire.verdict != won {\n		h.mu.Unlock()\n		return nil", "	if h.setFence(h.fence); true {\n		h.mu.Unlock()\n		return nil"), 1},
	{"raised where it is not ours", []edit{
		{model, "			if steady {\n				return 0\n			}\n", "			if steady {\n				for _, stripe := range args[5:] {\n					s.Fields[stripe] = max(s.Fields[stripe], args[4])\n				}\n				return 0\n			}\n"},
		{"round.go", "	case v.kind == voteGrant:\n		r.granted++\n", "	case v.kind == voteGrant, r.raising && v.kind == voteDenied, r.raising && v.kind == voteRefill:\n		r.granted++\n"},
	}, 149},
	{"answers above the fence counted", one("hold.go", "return s.answer > 0 && s.answer <= h.fence && !s.doubt", "return !s.doubt"), 210},
	{"granted without storing the fence", one(model, "		s.Fields[stripe] = fence\n", "		_ = stripe\n"), 1},

	// Memory.
	{"guard off", one("tend.go", "	case now-t.since >= k.watch && now >= m.held:", "	case now >= m.held:"), 2},
	{"counters not given to a healed node", one("tend.go", "			if n.heal(t.nonce, steadyMarker, top) && short {", "			if clear(top); n.heal(t.nonce, steadyMarker, top) && short {"), 10},
	{"run id of the first connection", one("tend.go", "	t.run = seen.info.run\n	k.report", "	if t.run == \"\" {\n		t.run = seen.info.run\n	}\n	k.report"), 2},
	{"missing marker taken for first use", one("tend.go", "	case known:\n		n.observe(m.String(), 0)\n		return\n", "	case false && known:\n"), 90},
}

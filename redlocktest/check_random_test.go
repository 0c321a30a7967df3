package redlocktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scene makes a random history in which everything is right.
type scene struct {
	*rand.Rand
	records []Record
	now     time.Duration
	fence   uint64
	holds   int
	values  map[string]int64
	clients int
}

func (s *scene) pause(max time.Duration) time.Duration { return time.Duration(s.Int64N(int64(max))) }

func (s *scene) add(r Record) { s.records = append(s.records, r) }

// randomHistory has n holds of each of some resources, one after the other; the
// resources' times run side by side.
func randomHistory(seed uint64, n int) *scene {
	s := &scene{Rand: rand.New(rand.NewPCG(seed, 0)), values: map[string]int64{}, clients: 3}
	for i := range 1 + s.IntN(3) {
		resource := fmt.Sprintf("r%d", i)
		s.now, s.fence = time.Second, 0
		for range n {
			s.hold(resource)
		}
	}
	slices.SortStableFunc(s.records, func(a, b Record) int { return int(a.At - b.At) })
	return s
}

// hold is one hold from its grant at now to its end, which becomes now.
func (s *scene) hold(resource string) {
	const validity = 100 * ms
	s.fence += 1 + s.Uint64N(3)
	s.holds++
	client := fmt.Sprintf("%s-%d", resource, s.IntN(s.clients))
	deadline := s.now + validity
	acquired := Record{Kind: Acquired, Client: client, Hold: itoa(s.holds), Resources: []string{resource}, Fence: s.fence,
		Began: max(1, s.now-s.pause(300*ms)), At: s.now + s.pause(5*ms), Deadline: deadline}
	of := func(at time.Duration, kind Kind, f func(*Record)) {
		r := Record{At: at, Kind: kind, Client: client, Hold: acquired.Hold, Fence: s.fence, Resources: []string{resource}}
		if f != nil {
			f(&r)
		}
		s.add(r)
	}
	// 1. Frozen on the way: what is handed out is over already, and others go on meanwhile.
	if s.IntN(10) == 0 {
		acquired.At = deadline + s.pause(time.Second)
		s.add(acquired)
		of(acquired.At+s.pause(ms), Lost, func(r *Record) { r.Text, r.Deadline = LeaseOver, deadline })
		s.now = deadline
		return
	}
	s.add(acquired)
	// 2. The life.
	at := acquired.At
	for range s.IntN(5) {
		at += s.pause(deadline - at)
		switch s.IntN(4) {
		case 0:
			deadline = at + validity
			of(at, Extended, func(r *Record) { r.Deadline = deadline })
		case 1:
			of(at, Checked, nil)
		case 2:
			s.values[resource]++
			of(at, Wrote, func(r *Record) { r.Value, r.Began = s.values[resource], at })
		case 3:
			s.values[resource] += int64(s.IntN(2))
			of(at, Unknown, nil)
		}
	}
	// 3. The end.
	switch s.IntN(6) {
	case 0: // told at the deadline, after a fault on all nodes
		s.add(Record{At: at, Kind: Fault, Text: "cut " + acquired.Hold})
		s.add(Record{At: deadline, Kind: Healed, Text: "cut " + acquired.Hold})
		told := deadline + s.pause(40*ms)
		of(told, Lost, func(r *Record) { r.Text, r.Deadline = "no quorum", deadline })
		s.now = deadline
	case 1: // killed, which is seen at once or never
		s.now = at + s.pause(deadline-at)
		s.add(Record{At: s.now, Kind: Ended, Client: client})
	default:
		s.now = at + s.pause(deadline-at)
		of(s.now, Releasing, func(r *Record) { r.Deadline = deadline })
		of(s.now+s.pause(20*ms), Released, func(r *Record) {
			if s.IntN(4) == 0 {
				r.Text = "no quorum"
			}
		})
	}
	s.now += s.pause(3 * ms) // 0 too: the next may touch
}

// index picks a record at random of those that fit.
func (s *scene) index(fits func(Record) bool) (int, bool) {
	var all []int
	for i, r := range s.records {
		if fits(r) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[s.IntN(len(all))], true
}

// neighbours picks two holds of one resource, one right after the other, that were
// both believed in for a while; their Acquired records.
func (s *scene) neighbours() (a, b *span, ok bool) {
	all, names := (&checked{spans: spansOf(s.records)}).byResource()
	type pair struct{ a, b *span }
	var pairs []pair
	for _, name := range names {
		solid := slices.DeleteFunc(slices.Clone(all[name]), func(sp *span) bool { return !sp.credible() || sp.end() <= sp.acquired.At })
		for i := 1; i < len(solid); i++ {
			pairs = append(pairs, pair{solid[i-1], solid[i]})
		}
	}
	if len(pairs) == 0 {
		return nil, nil, false
	}
	p := pairs[s.IntN(len(pairs))]
	return p.a, p.b, true
}

// corruptions each spoil a right history; they report false where it has nothing
// that they could spoil.
var corruptions = map[string]struct {
	rule  string
	spoil func(s *scene) bool
}{
	"seen valid while another had it": {RuleExclusive, func(s *scene) bool {
		a, b, ok := s.neighbours()
		if ok {
			s.add(Record{At: b.acquired.At + 1, Kind: Checked, Client: a.acquired.Client, Hold: a.acquired.Hold})
		}
		return ok
	}},
	"handed out too early": {RuleExclusive, func(s *scene) bool {
		a, b, ok := s.neighbours()
		if !ok {
			return false
		}
		i, _ := s.index(func(r Record) bool { return r.Kind == Acquired && r.Hold == b.acquired.Hold })
		s.records[i].At = a.end() - 1
		s.records[i].Began = min(s.records[i].Began, s.records[i].At)
		return s.records[i].At >= a.acquired.At
	}},
	"a fence that does not rise": {RuleFences, func(s *scene) bool {
		a, b, ok := s.neighbours()
		if !ok {
			return false
		}
		i, _ := s.index(func(r Record) bool { return r.Kind == Acquired && r.Hold == b.acquired.Hold })
		s.records[i].Fence = a.acquired.Fence - s.Uint64N(2)*min(1, a.acquired.Fence-1)
		return true
	}},
	"a value twice": {RuleStore, func(s *scene) bool {
		i, ok := s.index(func(r Record) bool { return r.Kind == Wrote })
		if ok {
			s.add(s.records[i])
		}
		return ok
	}},
	"a value that nobody wrote": {RuleStore, func(s *scene) bool {
		i, ok := s.index(func(r Record) bool { return r.Kind == Wrote })
		if ok {
			for j := range s.records {
				if r := &s.records[j]; r.Kind == Wrote && r.Resources[0] == s.records[i].Resources[0] && (j == i || r.Value > s.records[i].Value) {
					r.Value += int64(len(s.records))
				}
			}
		}
		first, _ := s.index(func(r Record) bool { return r.Kind == Wrote && r.Resources[0] == s.records[i].Resources[0] })
		for j, r := range s.records {
			if r.Kind == Wrote && r.Resources[0] == s.records[i].Resources[0] && r.Value < s.records[first].Value {
				first = j
			}
		}
		return ok && s.records[first].Value <= int64(len(s.records))
	}},
	"told late": {RuleHonest, func(s *scene) bool {
		i, ok := s.index(func(r Record) bool { return r.Kind == Lost })
		if ok {
			s.records[i].At = max(s.records[i].At, s.records[i].Deadline) + 51*ms
		}
		return ok
	}},
	"never told": {RuleHonest, func(s *scene) bool {
		i, ok := s.index(func(r Record) bool { return r.Kind == Lost })
		if ok {
			client := s.records[i].Client
			if _, ended := s.index(func(r Record) bool { return r.Kind == Ended && r.Client == client }); ended {
				return false
			}
			s.add(Record{At: s.now + time.Minute, Kind: NodeSays, Client: client})
			s.records = slices.Delete(s.records, i, i+1)
		}
		return ok
	}},
	"without a reason": {RuleHonest, func(s *scene) bool {
		_, ok := s.index(func(r Record) bool { return r.Kind == Fault })
		s.records = slices.DeleteFunc(s.records, func(r Record) bool { return r.Kind == Fault || r.Kind == Healed })
		return ok
	}},
	"something left": {RuleClean, func(s *scene) bool {
		s.add(Record{At: s.now + time.Minute, Kind: Left, Node: "n"})
		return true
	}},
}

const randomRuns = 400

func TestRandomRightHistoriesPass(t *testing.T) {
	for seed := range uint64(randomRuns) {
		s := randomHistory(seed, 1+int(seed)%150)
		require.NoError(t, historyOf(s.records...).Check(), "seed %d", seed)
	}
}

func TestRandomCorruptionsAreConvicted(t *testing.T) {
	for name, c := range corruptions {
		t.Run(name, func(t *testing.T) {
			convicted := 0
			for seed := range uint64(randomRuns) {
				s := randomHistory(seed, 1+int(seed)%40)
				if !c.spoil(s) {
					continue
				}
				convicted++
				v := violation(t, historyOf(s.records...).Check(), c.rule)
				requirePiece(t, v, seed)
			}
			require.Greater(t, convicted, randomRuns/4)
		})
	}
}

// requirePiece checks that a violation's records convict by themselves, and are
// no more than that takes.
func requirePiece(t *testing.T, v *Violation, seed uint64) {
	t.Helper()
	require.LessOrEqual(t, len(v.Records), 5, "seed %d: %v", seed, v)
	violation(t, historyOf(v.Records...).Check(), v.Rule)
	if v.Rule == RuleHonest || v.Rule == RuleClean { // they show the true deadline, and whose key it was, too
		return
	}
	check := map[string]func(*History) error{RuleExclusive: (*History).CheckExclusive, RuleFences: (*History).CheckFences,
		RuleStore: func(h *History) error { return h.CheckStore() }}[v.Rule]
	for i := range v.Records {
		without := slices.Delete(slices.Clone(v.Records), i, i+1)
		require.NoError(t, check(historyOf(without...)), "seed %d: it needs no %v\n%v", seed, v.Records[i], v)
	}
}

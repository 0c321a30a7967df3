package redlocktest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A mutex with a fence explains a history if each acquisition and each release can
// be given a moment of its call at which it happened, so that the mutex has one
// holder at a time and each holder a higher fence than the one before.
//
// Porcupine answers that for any model, by trying orders: it takes a time that
// doubles with each call that may have happened at the same moment, and in virtual
// time, where twenty waiters are served in one instant, that is all of them. This
// model needs no trying. Fences rise, so there is one order that may do: by fence.
// And in one order the moments can be found by taking the earliest that is left at
// each step. That fails only where a hold cannot have ended before one with a
// higher fence must have begun (or ended), so it is two holds that show it. Porcupine
// still decides about histories that are small, and with that about each piece that
// is shown; the tests hold the two to each other.

type mutexState struct {
	holder int // noHolder: free
	fence  uint64
}

type mutexCall struct {
	hold    int
	release bool
	fence   uint64
}

const noHolder = -1

var fencedMutex = porcupine.Model{
	Init: func() any { return mutexState{holder: noHolder} },
	Step: func(state, input, _ any) (bool, any) {
		s, call := state.(mutexState), input.(mutexCall)
		if call.release {
			return s.holder == call.hold, mutexState{noHolder, s.fence}
		}
		return s.holder == noHolder && call.fence > s.fence, mutexState{call.hold, call.fence}
	},
}

// fences checks each resource alone: a history of several objects has an order
// that explains it exactly if that of each object has.
func (c *checked) fences() *Violation {
	var first *Violation
	count := 0
	all, names := c.byResource()
	for _, name := range names {
		v, n := fencesOf(name, all[name])
		count += n
		if first == nil {
			first = v
		}
	}
	if first != nil {
		first.More = count - 1
	}
	return first
}

// fencesOf checks the holds of one resource, and counts those that are wrong.
func fencesOf(resource string, holds []*span) (*Violation, int) {
	var fenced, bare []*span
	for _, s := range holds {
		if s.acquired.Fence > 0 {
			fenced = append(fenced, s)
		} else {
			bare = append(bare, s)
		}
	}
	if len(fenced) == 0 {
		return nil, 0 // this lock has no fences
	}
	if len(bare) > 0 {
		return &Violation{Rule: RuleFences, Text: fmt.Sprintf("a hold of %q has no fence, and others have one", resource),
			Records: []Record{nearest(bare[0], fenced).acquired, bare[0].acquired}}, len(bare)
	}
	if len(fenced) <= smallHistory && explained(fenced) {
		return nil, 0
	}
	wrong := misplaced(fenced)
	if len(wrong) == 0 {
		return nil, 0
	}
	first := slices.MinFunc(wrong, func(a, b *span) int { return cmp.Compare(a.acquired.At, b.acquired.At) })
	return unexplained(resource, pieceOf(first, fenced)), len(wrong)
}

// nearest is the one of all that was acquired closest to s in time.
func nearest(s *span, all []*span) *span {
	return slices.MinFunc(all, func(a, b *span) int {
		return cmp.Compare((a.acquired.At - s.acquired.At).Abs(), (b.acquired.At - s.acquired.At).Abs())
	})
}

// ended is the earliest moment at which the mutex can have been free of s: it was
// held while it was believed in, and was not acquired before the call.
func (s *span) ended() time.Duration { return max(s.end(), s.called()) }

func (s *span) called() time.Duration { return min(s.acquired.Began, s.acquired.At) }

// freed is the latest moment at which it was released. A release that nobody
// confirmed may happen at any later time.
func (s *span) freed() time.Duration {
	if s.released.Kind == "" || s.released.Text != "" {
		return never
	}
	return max(s.released.At, s.ended())
}

// before says whether s, of the lower fence, can have been released before the
// other was acquired and released.
func (s *span) before(other *span) bool {
	return s.acquired.Fence < other.acquired.Fence && s.ended() <= min(other.acquired.At, other.freed())
}

// misplaced are the holds that cannot have been before all holds with a higher
// fence, and of those with the same fence all but the first. If there are none,
// taking the holds by fence, each as early as it can be, explains them.
func misplaced(holds []*span) []*span {
	byFence := slices.Clone(holds) // in the order of their acquisition
	slices.SortStableFunc(byFence, func(a, b *span) int { return cmp.Compare(a.acquired.Fence, b.acquired.Fence) })
	var wrong []*span
	latest := never // at which all with a higher fence can still be served
	for i := len(byFence) - 1; i >= 0; i-- {
		s := byFence[i]
		if s.ended() > latest || i > 0 && byFence[i-1].acquired.Fence == s.acquired.Fence {
			wrong = append(wrong, s)
		}
		latest = min(latest, s.acquired.At, s.freed())
	}
	return wrong
}

// pieceOf is a misplaced hold and, of those that it cannot have been before, the
// last one acquired until then, or else the first after; in the order of their
// acquisition. What is known of their ends is forgotten where it does not matter.
func pieceOf(wrong *span, holds []*span) []*span {
	at := slices.Index(holds, wrong)
	other := -1
	for i, s := range holds {
		if i == at || s.acquired.Fence < wrong.acquired.Fence || wrong.before(s) {
			continue
		}
		if i < at || other < 0 {
			other = i
		}
	}
	piece := []*span{holds[min(at, other)], holds[max(at, other)]}
	for i, s := range piece {
		piece[i] = &span{}
		piece[i].begin(s.acquired)
		if explained(piece) {
			piece[i] = s
		}
	}
	return piece
}

// smallHistory is how many holds porcupine is asked about: at worst, which is all
// at one instant, that takes some milliseconds.
const smallHistory = 8

// explained asks porcupine whether there is an order. If it does not answer within
// a second, the answer is by fence.
func explained(holds []*span) bool {
	switch porcupine.CheckOperationsTimeout(fencedMutex, operations(holds), time.Second) {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		return false
	default:
		return len(misplaced(holds)) == 0
	}
}

// operations are the calls behind holds, each with the time in which it must have
// happened.
func operations(holds []*span) []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, 2*len(holds))
	for i, s := range holds {
		ops = append(ops,
			porcupine.Operation{ClientId: i, Input: mutexCall{hold: i, fence: s.acquired.Fence},
				Call: int64(s.called()), Return: int64(s.acquired.At)},
			porcupine.Operation{ClientId: i, Input: mutexCall{hold: i, release: true},
				Call: int64(s.ended()), Return: int64(s.freed())})
	}
	return ops
}

func unexplained(resource string, holds []*span) *Violation {
	v := &Violation{Rule: RuleFences, Text: fmt.Sprintf("the fences of %q do not rise from holder to holder: in no order do these calls explain each other", resource)}
	if holds[0].acquired.Fence >= holds[1].acquired.Fence {
		v.Text = fmt.Sprintf("the fences of %q do not rise: %d, then %d", resource, holds[0].acquired.Fence, holds[1].acquired.Fence)
	}
	for _, s := range holds {
		v.Records = append(v.Records, s.records()...)
	}
	return v
}

package redlocktest

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// The mutex with a fence, as porcupine wants it. Holds are told apart by their
// place in a list.

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

// pieceSize is how many holds are given to porcupine together, about: its cost
// grows with the square.
const pieceSize = 64

// fences checks each resource alone: a history of several objects has an order
// that explains it exactly if that of each object has.
func (c *checked) fences() *Violation {
	var first *Violation
	count := 0
	all, names := c.byResource()
	for _, name := range names {
		var fenced []*span
		for _, s := range all[name] {
			if s.acquired.Fence > 0 {
				fenced = append(fenced, s)
			}
		}
		for _, piece := range pieces(fenced) {
			if explained(piece) {
				continue
			}
			if count++; first == nil {
				first = unexplained(name, shrink(piece))
			}
		}
	}
	if first != nil {
		first.More = count - 1
	}
	return first
}

// pieces cuts holds, in the order of their acquisition, into pieces that overlap
// in one hold. Each piece has an order that explains it exactly if the whole has:
//
// Call a hold solid if it was believed in for a while, [At, end] with At < end. In
// any order that explains the history the mutex is held by it for all that time,
// with a fence that is known. So nothing else happens at its At, and whatever was
// acquired by then was released by then: later in the order it could only have
// been acquired after the solid hold's end, after its own call had returned. What
// is acquired later by a solid hold comes after its end for the same reason,
// however early the call began. That leaves holds that are not solid: where the
// call of a later one began before At, it may have been on either side, and there
// is no cut.
func pieces(holds []*span) [][]*span {
	cut := make([]bool, len(holds))
	earliest := never // call of a later hold that is not solid
	for i := len(holds) - 1; i >= 0; i-- {
		s := holds[i]
		cut[i] = s.solid() && s.acquired.At < earliest
		if !s.solid() {
			earliest = min(earliest, s.acquired.Began)
		}
	}
	var all [][]*span
	begin := 0
	for i := range holds {
		if i == len(holds)-1 || cut[i] && i-begin >= pieceSize {
			all = append(all, holds[begin:i+1])
			begin = i
		}
	}
	return all
}

func (s *span) solid() bool { return s.credible() && s.end() > s.acquired.At }

// explained asks porcupine whether there is an order.
func explained(holds []*span) bool {
	return porcupine.CheckOperations(fencedMutex, operations(holds))
}

// operations are the calls behind holds, in the order of their acquisition, each
// with the time in which it must have happened. Both ends are moved towards each
// other as far as the argument at pieces allows: that keeps porcupine from trying
// orders that cannot be, and gives every open release an end.
func operations(holds []*span) []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, 2*len(holds))
	ended := time.Duration(math.MinInt64) // the last end of a solid hold so far
	for i, s := range holds {
		call := s.acquired.Began
		if s.solid() {
			call = max(call, min(ended, s.acquired.At))
			ended = max(ended, s.end())
		}
		ops = append(ops, porcupine.Operation{ClientId: i, Input: mutexCall{hold: i, fence: s.acquired.Fence},
			Call: int64(call), Return: int64(s.acquired.At)})
	}
	next := never // when the next solid hold was acquired
	for i := len(holds) - 1; i >= 0; i-- {
		s := holds[i]
		from, to := max(s.end(), s.acquired.Began), next
		if s.released.Kind != "" && s.released.Text == "" {
			to = min(to, s.released.At)
		}
		ops = append(ops, porcupine.Operation{ClientId: i, Input: mutexCall{hold: i, release: true},
			Call: int64(from), Return: int64(max(from, to))})
		if s.solid() {
			next = s.acquired.At
		}
	}
	return ops
}

// shrink finds the fewest holds of an unexplained piece that are unexplained by
// themselves: leaving holds out of a history that can be explained never makes it
// one that cannot. Then it forgets what is known of a hold's end where it does not
// matter.
func shrink(holds []*span) []*span {
	left := append([]*span(nil), holds...)
	for i := 0; i < len(left); {
		without := append(append([]*span(nil), left[:i]...), left[i+1:]...)
		if explained(without) {
			i++
		} else {
			left = without
		}
	}
	for i, s := range left {
		left[i] = &span{}
		left[i].begin(s.acquired)
		if explained(left) {
			left[i] = s
		}
	}
	return left
}

func unexplained(resource string, holds []*span) *Violation {
	v := &Violation{Rule: RuleFences, Text: fmt.Sprintf("the fences of %q do not rise from holder to holder: in no order do these calls explain each other", resource)}
	if len(holds) == 2 && holds[0].acquired.Fence >= holds[1].acquired.Fence {
		v.Text = fmt.Sprintf("the fences of %q do not rise: %d, then %d", resource, holds[0].acquired.Fence, holds[1].acquired.Fence)
	}
	for _, s := range holds {
		v.Records = append(v.Records, s.records()...)
	}
	return v
}

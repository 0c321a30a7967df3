package redlocktest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// randomHolds are holds of one resource, right or wrong: calls, ends and fences
// with so few values that many are equal.
func randomHolds(random *rand.Rand, n int) []Record {
	var records []Record
	now := 0
	for i := range n {
		now += random.IntN(4)
		hold, client := itoa(i), "c"+itoa(i)
		fence := uint64(2 * (i + 1))
		if random.IntN(8) == 0 {
			fence = uint64(max(1, 2*(i+1)-2+random.IntN(5)))
		}
		end := now + random.IntN(6)
		records = append(records, acquired(100+now, 100+now-random.IntN(9), client, hold, fence, 100+now-2+random.IntN(10)))
		switch random.IntN(4) {
		case 0: // nobody knows
		case 1:
			records = append(records, event(100+end, Ended, client, ""))
		default:
			records = append(records, event(100+end, Releasing, client, hold))
			done := event(100+end+random.IntN(4), Released, client, hold)
			if random.IntN(3) == 0 {
				done.Text = "no quorum"
			}
			records = append(records, done)
		}
		now += random.IntN(3)
	}
	return records
}

func TestTheOrderByFenceIsWhatPorcupineFinds(t *testing.T) {
	right := 0
	const runs = 3000
	for seed := range uint64(runs) {
		random := rand.New(rand.NewPCG(seed, 7))
		h := historyOf(randomHolds(random, 2+random.IntN(6))...)
		holds := spansOf(h.Records())
		explained := explained(holds)
		wrong := misplaced(holds)
		require.Equal(t, explained, len(wrong) == 0, "seed %d", seed)
		require.Equal(t, explained, h.CheckFences() == nil, "seed %d", seed)
		if explained {
			right++
		} else {
			for _, s := range wrong {
				v := unexplained("r", pieceOf(s, holds))
				violation(t, historyOf(v.Records...).CheckFences(), RuleFences)
			}
		}
	}
	require.Greater(t, right, runs/10)
	require.Less(t, right, runs*9/10)
}

// In virtual time any number of waiters are served in one instant, in another
// order than that in which they came.
func TestManyHoldsInOneInstantAreCheckedAtOnce(t *testing.T) {
	const n = 2000
	var records []Record
	for i := range n {
		records = append(records, acquired(9000, 1+n-i, "c", itoa(i), uint64(i+1), 9900), event(9000, Releasing, "c", itoa(i)),
			event(9000, Released, "c", itoa(i)))
	}
	began := time.Now()
	require.NoError(t, historyOf(records...).Check())
	for i, fence := range map[int]uint64{n - 1: n - 1, n / 2: 1} { // one twice
		before := records[3*i].Fence
		records[3*i].Fence = fence
		v := violation(t, historyOf(records...).CheckFences(), RuleFences)
		require.Equal(t, []uint64{fence, fence}, []uint64{v.Records[0].Fence, v.Records[1].Fence})
		require.Len(t, v.Records, 2)
		records[3*i].Fence = before
	}
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestAHoldWithoutAFenceAmongOthersIsConvicted(t *testing.T) {
	for name, c := range map[string]struct {
		fences []uint64
		piece  []int
	}{
		"none has one": {fences: []uint64{0, 0, 0}},
		"the last":     {fences: []uint64{3, 9, 0}, piece: []int{1, 2}},
		"the first":    {fences: []uint64{0, 3, 9}, piece: []int{0, 1}},
		"all but one":  {fences: []uint64{0, 3, 0}, piece: []int{0, 1}},
	} {
		var records, piece []Record
		for i, fence := range c.fences {
			records = append(records, acquired(20*i+10, 20*i+5, "a", itoa(i), fence, 20*i+100), event(20*i+15, Releasing, "a", itoa(i)))
		}
		other := acquired(0, 0, "a", "other", 0, 10)
		other.Resources = []string{"another"} // a lock without fences, on its own
		err := historyOf(append(records, other, event(5, Releasing, "a", "other"))...).Check()
		if c.piece == nil {
			require.NoError(t, err, name)
			continue
		}
		for _, i := range c.piece {
			piece = append(piece, records[2*i])
		}
		v := violation(t, err, RuleFences)
		require.Equal(t, piece, v.Records, name)
		require.Contains(t, v.Text, "has no fence", name)
	}
}

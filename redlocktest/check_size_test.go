package redlocktest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkChecks checks a million records: an hour's run, with waiters whose
// calls began long before and processes that die.
func BenchmarkChecks(b *testing.B) {
	h, records := longRun(1_000_000)
	b.ReportMetric(float64(records), "records")
	for b.Loop() {
		require.NoError(b, h.Check())
	}
}

// longRun is a history of some records over eight resources.
func longRun(size int) (h *History, records int) {
	h = NewHistory()
	random := rand.New(rand.NewPCG(1, 2))
	for resource := range 8 {
		now := time.Second
		value := int64(0)
		for i := range size / 8 / 5 {
			client, hold := itoa(resource)+"-"+itoa(random.IntN(10)), itoa(resource)+"/"+itoa(i)
			r := Record{Client: client, Hold: hold, Resources: []string{itoa(resource)}, Fence: uint64(i + 1)}
			add := func(at time.Duration, kind Kind, f func(*Record)) {
				rec := r
				rec.At, rec.Kind = at, kind
				if f != nil {
					f(&rec)
				}
				h.Add(rec)
			}
			add(now, Acquired, func(r *Record) {
				r.Began, r.Deadline = max(1, now-time.Duration(random.Int64N(int64(2*time.Second)))), now+time.Second
			})
			add(now+ms, Checked, nil)
			add(now+2*ms, Wrote, func(r *Record) { value++; r.Value, r.Began = value, now+ms })
			now += 10 * ms
			if random.IntN(1000) == 0 {
				add(now, Ended, nil)
				continue
			}
			add(now, Releasing, nil)
			add(now+ms, Released, nil)
		}
	}
	return h, len(h.Records())
}

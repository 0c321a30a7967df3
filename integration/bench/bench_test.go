package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

// sample is what one variant did in one round.
type sample struct {
	pairs    int
	perSec   float64
	p50, p99 time.Duration // of Lock alone
	allocs   float64       // per Lock + Unlock, whole process
	failed   int
	routines int // the most goroutines seen, beyond those of the idle process
}

// measure has callers lock and unlock, each its own resource, for d.
func measure(l locker, callers int, d time.Duration) sample {
	var mu sync.Mutex
	var took []time.Duration
	var s sample
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	idle := runtime.NumGoroutine()
	start := time.Now()
	for i := range callers {
		resource := fmt.Sprintf("r%d", i)
		wg.Go(func() {
			var own []time.Duration
			failed := 0
			for {
				select {
				case <-stop:
					mu.Lock()
					took = append(took, own...)
					s.failed += failed
					mu.Unlock()
					return
				default:
				}
				begin := time.Now()
				unlock, err := l.lock(context.Background(), resource)
				if err != nil {
					failed++
					continue
				}
				own = append(own, time.Since(begin))
				if unlock() != nil {
					failed++
				}
			}
		})
	}
	for time.Since(start) < d {
		time.Sleep(d / 10)
		s.routines = max(s.routines, runtime.NumGoroutine()-idle)
	}
	close(stop)
	wg.Wait()
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	s.pairs = len(took)
	if s.pairs == 0 {
		return s
	}
	s.perSec = float64(s.pairs) / elapsed.Seconds()
	s.p50, s.p99 = took[s.pairs/2], took[s.pairs*99/100]
	s.allocs = float64(after.Mallocs-before.Mallocs) / float64(s.pairs)
	return s
}

const rounds = 7

// sideBySide lets the variants take turns and returns each one's samples.
func sideBySide(ls []locker, callers int, d time.Duration) [][]sample {
	all := make([][]sample, len(ls))
	for _, l := range ls { // connect and warm up
		measure(l, callers, d/4)
	}
	for range rounds {
		for i, l := range ls {
			all[i] = append(all[i], measure(l, callers, d))
		}
	}
	return all
}

func median[T int | float64 | time.Duration](ss []sample, f func(sample) T) T {
	var vs []T
	for _, s := range ss {
		vs = append(vs, f(s))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// ratio is the median over the rounds of a's figure by b's of the same round.
func ratio(a, b []sample, f func(sample) float64) float64 {
	var rs []float64
	for i := range a {
		rs = append(rs, f(a[i])/f(b[i]))
	}
	slices.Sort(rs)
	return rs[len(rs)/2]
}

func perSec(s sample) float64 { return s.perSec }
func p50(s sample) float64    { return float64(s.p50) }
func p99(s sample) float64    { return float64(s.p99) }

func table(head string, rows func(w *tabwriter.Writer)) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, head)
	rows(w)
	_ = w.Flush()
}

// BenchmarkCallers is Lock + Unlock by 1, 64, 256 and 1 024 callers, each on its own resource.
func BenchmarkCallers(b *testing.B) {
	set := servers.Start(b, 5)
	_, ours := newRedlock(b, set.URLs())
	ls := []locker{ours, newPlain(b, set.URLs()), newRedsync(b, set.URLs(), false), newRedsync(b, set.URLs(), true)}
	throughput := map[int]float64{}
	for _, callers := range []int{1, 64, 256, 1024} {
		all := sideBySide(ls, callers, time.Second)
		table(fmt.Sprintf("\n%d callers\tpairs/s\tredlock is\tLock p50\tredlock's p50 is\tLock p99\tallocs/pair\tgoroutines\tfailed\t", callers),
			func(w *tabwriter.Writer) {
				for i, l := range ls {
					s := all[i]
					fmt.Fprintf(w, "%s\t%.0f\t%.2f x\t%v\t%.2f x\t%v\t%.0f\t%d\t%d\t\n", l.name, median(s, perSec),
						ratio(all[0], s, perSec), median(s, func(s sample) time.Duration { return s.p50 }),
						ratio(all[0], s, p50), median(s, func(s sample) time.Duration { return s.p99 }),
						median(s, func(s sample) float64 { return s.allocs }),
						median(s, func(s sample) int { return s.routines }),
						median(s, func(s sample) int { return s.failed }))
				}
			})
		throughput[callers] = median(all[0], perSec)
		b.ReportMetric(ratio(all[0], all[2], perSec), fmt.Sprintf("x_redsync_%d", callers))
		b.ReportMetric(ratio(all[0], all[3], perSec), fmt.Sprintf("x_failfast_%d", callers))
		if callers == 1 {
			b.ReportMetric(ratio(all[0], all[1], p50), "p50_of_plain")
			b.ReportMetric(median(all[0], func(s sample) float64 { return s.allocs }), "allocs/pair")
		}
	}
	b.ReportMetric(throughput[1024]/throughput[256], "x_1024_of_256")
}

// BenchmarkBadNodes is one node hung and one refused, against the same pool's healthy figures of the same run.
func BenchmarkBadNodes(b *testing.B) {
	set := servers.Start(b, 5)
	for _, callers := range []int{8, 64, 256} {
		_, healthy := newRedlock(b, set.URLs())
		urls := set.URLs()
		hung, err := redlocktest.NewProxy(set.Server(0).Addr())
		require.NoError(b, err)
		defer hung.Close()
		hung.BlackHole(true)
		refused, err := redlocktest.NewProxy(set.Server(1).Addr())
		require.NoError(b, err)
		defer refused.Close()
		require.NoError(b, refused.Refuse(true))
		urls[0], urls[1] = "redis://"+hung.Addr(), "redis://"+refused.Addr()
		_, bad := newRedlock(b, urls)
		healthy.name, bad.name = "healthy", "two bad nodes"
		all := sideBySide([]locker{healthy, bad}, callers, time.Second)
		table(fmt.Sprintf("\n%d callers\tpairs/s\tLock p50\tLock p99\tp99 of healthy\tgoroutines\tfailed\t", callers),
			func(w *tabwriter.Writer) {
				for i, name := range []string{healthy.name, bad.name} {
					s := all[i]
					fmt.Fprintf(w, "%s\t%.0f\t%v\t%v\t%.2f x\t%d\t%d\t\n", name, median(s, perSec),
						median(s, func(s sample) time.Duration { return s.p50 }),
						median(s, func(s sample) time.Duration { return s.p99 }), ratio(s, all[0], p99),
						median(s, func(s sample) int { return s.routines }), median(s, func(s sample) int { return s.failed }))
				}
			})
		b.ReportMetric(ratio(all[1], all[0], p99), fmt.Sprintf("p99_of_healthy_%d", callers))
	}
}

// BenchmarkLatency is a network with a round trip of 0, 1 and 5 ms.
func BenchmarkLatency(b *testing.B) {
	set := servers.Start(b, 5)
	for _, delay := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		var urls []string
		for i := range set.Len() {
			p, err := redlocktest.NewProxy(set.Server(i).Addr())
			require.NoError(b, err)
			defer p.Close()
			p.Delay(delay)
			urls = append(urls, "redis://"+p.Addr())
		}
		_, ours := newRedlock(b, urls)
		ls := []locker{ours, newPlain(b, urls)}
		for _, callers := range []int{1, 64, 256} {
			all := sideBySide(ls, callers, time.Second)
			table(fmt.Sprintf("\n%v, %d callers\tpairs/s\tLock p50\tLock p99\t", delay, callers), func(w *tabwriter.Writer) {
				for i, l := range ls {
					fmt.Fprintf(w, "%s\t%.0f\t%v\t%v\t\n", l.name, median(all[i], perSec),
						median(all[i], func(s sample) time.Duration { return s.p50 }),
						median(all[i], func(s sample) time.Duration { return s.p99 }))
				}
			})
		}
	}
}

// cpu is the processor time this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what heap and stacks take after a collection.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// BenchmarkHeld keeps 10 000 locks of TTL 9 s alive, by the watchdog and by redsync's Extend every 3 s.
func BenchmarkHeld(b *testing.B) {
	const n, watch = 10_000, 18 * time.Second
	set := servers.Start(b, 5)
	ctx := context.Background()

	p, _ := newRedlock(b, set.URLs())
	l, err := p.Lock(ctx, "first")
	require.NoError(b, err)
	require.NoError(b, l.Unlock(ctx))
	idle, base := runtime.NumGoroutine(), memory()
	locks := make([]*redlock.Lock, n)
	for i := range locks {
		locks[i], err = p.Lock(ctx, fmt.Sprintf("held-%d", i))
		require.NoError(b, err)
	}
	time.Sleep(3 * time.Second)
	each := float64(memory()-base) / n
	begin, start := cpu(), time.Now()
	time.Sleep(watch)
	ours := float64(cpu()-begin) / float64(time.Since(start))
	routines := runtime.NumGoroutine() - idle
	for _, l := range locks {
		require.True(b, l.Valid())
	}
	stats := p.Stats()
	require.NoError(b, p.Close())

	theirs := redsyncHeld(b, set.URLs(), n, watch)
	table("\n10 000 held locks\tcores\tgoroutines more\tbytes each\tlost\tworst lateness\t", func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "redlock\t%.3f\t%d\t%.0f\t%d\t%v\t\n", ours, routines, each, stats.Lost, stats.MaxLateness)
		fmt.Fprintf(w, "redsync, by hand\t%.3f\t\t\t\t\t\n", theirs)
	})
	b.ReportMetric(ours/theirs, "cpu_of_redsync")
	b.ReportMetric(each, "B/held")
	b.ReportMetric(float64(routines), "goroutines")
}

package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// quantile is of a list that it sorts.
func quantile(all []time.Duration, share float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(share*float64(len(all))))]
}

// handovers measures from the moment at which another process begins to unlock to the moment at which Lock returns here,
// where it has been waiting; and, between them, an uncontended Lock.
func handovers(b *testing.B, c contender, n int, settle time.Duration) (handed, alone []time.Duration) {
	other := start(b, c)
	_, l := c.locker(b)
	ctx := context.Background()
	for range n {
		other.say()
		require.Equal(b, "locked", other.hear())
		got := make(chan time.Time, 1)
		done := make(chan func() error, 1)
		go func() {
			unlock, err := l.lock(ctx, "wanted")
			got <- time.Now()
			if err != nil {
				b.Error(err)
			}
			done <- unlock
		}()
		time.Sleep(settle) // until it waits
		other.say()
		at, err := strconv.ParseInt(other.hear(), 10, 64)
		require.NoError(b, err)
		handed = append(handed, (<-got).Sub(time.Unix(0, at)))
		require.NoError(b, (<-done)())

		time.Sleep(settle)
		began := time.Now()
		unlock, err := l.lock(ctx, "alone")
		alone = append(alone, time.Since(began))
		require.NoError(b, err)
		require.NoError(b, unlock())
	}
	return handed, alone
}

// BenchmarkHandover is the time from Unlock in one process to Lock in another that waits.
func BenchmarkHandover(b *testing.B) {
	set := servers.Start(b, 5)
	ours, alone := handovers(b, contender{URLs: set.URLs()}, 1000, 5*time.Millisecond)
	theirs, _ := handovers(b, contender{URLs: set.URLs(), Redsync: true}, 50, 20*time.Millisecond)
	table("\nUnlock to the waiter's Lock\tp50\tp99\tmost\t", func(w *tabwriter.Writer) {
		for _, row := range []struct {
			name string
			all  []time.Duration
		}{{"redlock", ours}, {"one uncontended Lock", alone}, {"redsync FailFast", theirs}} {
			fmt.Fprintf(w, "%s\t%v\t%v\t%v\t\n", row.name, quantile(row.all, 0.5), quantile(row.all, 0.99), row.all[len(row.all)-1])
		}
	})
	base := float64(quantile(alone, 0.5))
	b.ReportMetric(float64(quantile(ours, 0.5))/base, "p50_of_a_Lock")
	b.ReportMetric(float64(quantile(ours, 0.99))/base, "p99_of_a_Lock's_p50")
	b.ReportMetric(float64(quantile(theirs, 0.5))/float64(quantile(ours, 0.5)), "x_redsync")
}

// BenchmarkLocalWaiters is 1 000 callers of one process on one resource, against one caller alone.
func BenchmarkLocalWaiters(b *testing.B) {
	set := servers.Start(b, 5)
	var many, one []float64
	var longest time.Duration
	var commands, plain float64
	for range rounds {
		a := contender{URLs: set.URLs(), Callers: 1, For: time.Second}.play(b)
		m := contender{URLs: set.URLs(), Callers: 1000, For: time.Second}.play(b)
		one = append(one, float64(a.sum())/a.Took.Seconds())
		many = append(many, float64(m.sum())/m.Took.Seconds())
		commands, plain = float64(m.Requests)/float64(m.sum()), float64(a.Requests)/float64(a.sum())
		longest = max(longest, m.Longest)
	}
	slices.Sort(many)
	slices.Sort(one)
	fmt.Printf("\n1 000 local waiters: %.0f handovers/s, one caller alone %.0f; %.2f requests each, %.2f alone; longest wait %v\n",
		many[rounds/2], one[rounds/2], commands, plain, longest)
	b.ReportMetric(many[rounds/2]/one[rounds/2], "x_one_caller")
	b.ReportMetric(commands/plain, "requests_of_uncontended")
}

// BenchmarkLoneWaiter is 4 callers of one process against 1 of another.
func BenchmarkLoneWaiter(b *testing.B) {
	set := servers.Start(b, 5)
	newRedlock(b, set.URLs())
	begin := time.Now().Add(2 * time.Second)
	busy := start(b, contender{URLs: set.URLs(), Callers: 4, For: 10 * time.Second, Begin: begin})
	lone := start(b, contender{URLs: set.URLs(), Callers: 1, For: 10 * time.Second, Begin: begin})
	many, one := busy.result(), lone.result()
	fmt.Printf("\n4 callers of one process: %d; 1 of another: %d, longest wait %v\n", many.sum(), one.sum(), one.Longest)
	b.ReportMetric(float64(one.sum())/float64(many.sum()+one.sum()), "share_of_the_lone")
	b.ReportMetric(one.Longest.Seconds()*1000, "ms_longest_wait")
}

// jain is Jain's fairness index: 1 if all have the same, 1/n if one has everything.
// R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness and Discrimination, 1984.
func jain(all []int) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range all {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(all)) * squares)
}

// BenchmarkFairness is 5 processes of 40 callers each on one resource, with and without WithFair.
func BenchmarkFairness(b *testing.B) {
	set := servers.Start(b, 5)
	newRedlock(b, set.URLs())
	for _, fair := range []bool{true, false} {
		begin := time.Now().Add(3 * time.Second)
		var all []*process
		for range 5 {
			all = append(all, start(b, contender{URLs: set.URLs(), Fair: fair, Callers: 40, For: 20 * time.Second, Begin: begin}))
		}
		var locks []int
		var longest time.Duration
		var asked uint64
		for _, p := range all {
			r := p.result()
			locks = append(locks, r.Locks...)
			longest = max(longest, r.Longest)
			asked += r.Requests
		}
		total := played{Locks: locks}.sum()
		name := map[bool]string{true: "fair", false: "plain"}[fair]
		fmt.Printf("\n5 processes of 40 callers, %s: %d handovers, %.1f requests each, Jain's index %.4f, each caller %d to %d, longest wait %v\n",
			name, total, float64(asked)/float64(total), jain(locks), slices.Min(locks), slices.Max(locks), longest)
		b.ReportMetric(jain(locks), "jain_"+name)
		b.ReportMetric(longest.Seconds(), "s_longest_"+name)
		b.ReportMetric(float64(total), "handovers_"+name)
	}
}

// BenchmarkIdleWaiters is 10 000 calls that wait for 10 000 resources which another process holds.
func BenchmarkIdleWaiters(b *testing.B) {
	const n, watch = 10_000, 20 * time.Second
	set := servers.Start(b, 5)
	other := start(b, contender{URLs: set.URLs(), Hold: n})
	require.Equal(b, "held", other.hear())
	p, _ := newRedlock(b, set.URLs(), redlock.WithTTL(9*time.Second))
	routines, base := runtime.NumGoroutine(), memory()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, _ = p.Lock(ctx, fmt.Sprint("held-", i)) })
	}
	time.Sleep(5 * time.Second)
	each := float64(memory()-base) / n
	more := runtime.NumGoroutine() - routines - n
	connections := 0
	for i := range set.Len() {
		list, err := set.Server(i).Client().ClientList(ctx).Result()
		require.NoError(b, err)
		for _, line := range strings.Split(list, "\n") {
			if sub := strings.Index(line, " sub="); sub > 0 && !strings.HasPrefix(line[sub:], " sub=0") {
				connections++
			}
		}
	}
	before, begin, began := requests(p), cpu(), time.Now()
	time.Sleep(watch)
	cores := float64(cpu()-begin) / float64(time.Since(began))
	asked := float64(requests(p)-before) / time.Since(began).Seconds()
	cancel()
	wg.Wait()
	fmt.Printf("\n10 000 waiters on 10 000 held resources: %.3f cores, %.0f requests/s, %d subscribed connections, %d goroutines more, %.0f bytes each\n",
		cores, asked, connections, more, each)
	b.ReportMetric(cores, "cores")
	b.ReportMetric(float64(connections), "connections")
	b.ReportMetric(each, "B/waiter")
}

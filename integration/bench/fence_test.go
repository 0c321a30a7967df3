package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

// peerEnv has the nodes' URLs in the process that BenchmarkFences starts.
const peerEnv = "REDLOCK_BENCH_PEER"

func TestMain(m *testing.M) {
	if urls := os.Getenv(peerEnv); urls != "" {
		testing.Benchmark(func(b *testing.B) { fmt.Println(counted(contend(b, strings.Fields(urls)))) })
		os.Exit(0)
	}
	if c := os.Getenv(contenderEnv); c != "" {
		contenderMain(c)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// counted is how the other process tells what contend counted.
func counted(acquired, raised uint64) string { return fmt.Sprintf("counted %d %d", acquired, raised) }

// contend has 64 callers lock and unlock 64 resources at random for a while, and says how many locks there were and how
// many of them took a second round trip for their fence.
func contend(b *testing.B, urls []string) (acquired, raised uint64) {
	p, l := newRedlock(b, urls)
	before := p.Stats()
	stop := time.Now().Add(5 * time.Second)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for time.Now().Before(stop) {
				unlock, err := l.lock(context.Background(), fmt.Sprint("fence-", rand.N(64)))
				if err == nil {
					_ = unlock()
				}
			}
		})
	}
	wg.Wait()
	after := p.Stats()
	return after.Acquired - before.Acquired, after.FencesRaised - before.FencesRaised
}

// BenchmarkFences is how often the nodes answer different fences: two processes with 64 callers each, all on the same 64
// resources.
func BenchmarkFences(b *testing.B) {
	set := servers.Start(b, 5)
	newRedlock(b, set.URLs())
	peer := exec.Command(os.Args[0], "-test.benchtime=1x")
	peer.Env = append(os.Environ(), peerEnv+"="+strings.Join(set.URLs(), " "))
	var out bytes.Buffer
	peer.Stdout, peer.Stderr = &out, os.Stderr
	require.NoError(b, peer.Start())
	acquired, raised := contend(b, set.URLs())
	require.NoError(b, peer.Wait())
	var theirs, theirsRaised uint64
	_, err := fmt.Sscanf(out.String()[strings.Index(out.String(), "counted"):], "counted %d %d", &theirs, &theirsRaised)
	require.NoError(b, err, out.String())
	fmt.Printf("\ntwo processes, 64 callers each on 64 resources: %d locks, %d second round trips\n", acquired+theirs, raised+theirsRaised)
	b.ReportMetric(100*float64(raised+theirsRaised)/float64(acquired+theirs), "%second_trips")
}

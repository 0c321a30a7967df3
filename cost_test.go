package redlock

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Scripts as they would be without fences and markers.
const (
	plainAcquire = `local time = redis.call('TIME')
if tonumber(time[1]) > tonumber(ARGV[3]) then return -1 end
local granted = time[1] * 1000000 + time[2]
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return granted end
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] then return {1, redis.call('PTTL', KEYS[1])} end
return granted`
	plainRenew = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`
)

// BenchmarkChecks is what fences, markers and clock checks cost: Lock + Unlock on five redis-server processes with all
// of it and without, in turns within one run, so that the ratio holds on a noisy machine.
//
//	go test -run '^$' -bench Checks -benchtime 1x .
func BenchmarkChecks(b *testing.B) {
	addrs := startServers(b, 5)
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			with, without := scripts, scripts
			without[opAcquire], without[opRenew] = newScript(plainAcquire), newScript(plainRenew)
			use := func(set [opCount]script) { scripts, loaded = set, append(set[:opCount:opCount], markScript) }
			defer use(with)
			full := benchPool(b, addrs, true)
			use(without)
			plain := benchPool(b, addrs, false)

			var ops, p50 [2][]float64
			for range 60 {
				for i, p := range []*Pool{full, plain} {
					use([][opCount]script{with, without}[i]) // the pools make their commands as they need them
					rate, median := contend(b, p, callers, 80*time.Millisecond)
					ops[i], p50[i] = append(ops[i], rate), append(p50[i], float64(median.Nanoseconds()))
				}
			}
			b.ReportMetric(middle(ops[0]), "ops/s")
			b.ReportMetric(middle(ops[0])/middle(ops[1]), "x-ops-without")
			b.ReportMetric(middle(p50[0])/middle(p50[1]), "x-p50-without")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func middle(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }

// contend has callers lock and unlock a resource each for a while.
func contend(b *testing.B, p *Pool, callers int, d time.Duration) (rate float64, median time.Duration) {
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			var mine []time.Duration
			for name := fmt.Sprint("bench:", c); time.Since(start) < d; {
				t := time.Now()
				l, err := p.Lock(context.Background(), name)
				if err != nil || l.Unlock(context.Background()) != nil {
					b.Error(err)
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(took)
	return float64(len(took)) / time.Since(start).Seconds(), took[len(took)/2]
}

// benchPool is a pool with everything on, its servers' guard over, or with everything off; it is warm.
func benchPool(b *testing.B, addrs []string, on bool) *Pool {
	guard := time.Duration(0)
	if on {
		guard = time.Second
	}
	var clients []*redis.Client
	for _, a := range addrs {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: a}))
	}
	p, err := New(clients, WithRestartGuard(guard), WithTTL(time.Second))
	require.NoError(b, err)
	if !on {
		for _, n := range p.quorum.nodes {
			n.state = ""
		}
	}
	b.Cleanup(func() {
		_ = p.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	})
	l, err := p.Lock(context.Background(), "warm")
	require.NoError(b, err)
	require.NoError(b, l.Unlock(context.Background()))
	return p
}

// startServers starts redis-server processes on free ports of 127.0.0.1 and kills them at the end.
func startServers(b *testing.B, n int) (addrs []string) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("no redis-server here")
	}
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		addr := l.Addr().String()
		require.NoError(b, l.Close())
		_, port, _ := net.SplitHostPort(addr)
		cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", b.TempDir())
		require.NoError(b, cmd.Start())
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		addrs = append(addrs, addr)
	}
	for _, a := range addrs {
		for i := 0; ; i++ {
			c, err := net.Dial("tcp", a)
			if err == nil {
				_ = c.Close()
				break
			}
			require.Less(b, i, 200, "no answer from %s", a)
			time.Sleep(10 * time.Millisecond)
		}
	}
	return addrs
}

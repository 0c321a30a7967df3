package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed71a1c8e3/redlock"
	"github.com/stretchr/testify/require"
)

// contenderEnv has, as JSON, what another process is to do with the nodes.
const contenderEnv = "REDLOCK_BENCH_CONTENDER"

// contender is one process of several that want the same locks.
type contender struct {
	URLs    []string
	Redsync bool // by redsync instead
	Fair    bool
	Callers int           // loops of Lock + Unlock on one resource
	For     time.Duration // how long
	Begin   time.Time     // when all begin
	Hold    int           // how many resources it holds, until its input ends, instead
}

// played is what the callers of a contender got.
type played struct {
	Locks    []int // of each caller
	Longest  time.Duration
	Requests uint64 // sent to all nodes
	Took     time.Duration
}

func (p played) sum() (n int) {
	for _, k := range p.Locks {
		n += k
	}
	return n
}

// contenderMain is the main function of such a process.
func contenderMain(text string) {
	var c contender
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	testing.Benchmark(func(b *testing.B) {
		if b.N > 1 {
			return
		}
		switch {
		case c.Hold > 0:
			c.hold(b)
		case c.Callers > 0:
			out, err := json.Marshal(c.play(b))
			require.NoError(b, err)
			fmt.Println(string(out))
		default:
			c.obey(b)
		}
	})
}

func (c contender) locker(b testing.TB) (*redlock.Pool, locker) {
	if c.Redsync {
		return nil, newRedsync(b, c.URLs, true)
	}
	var opts []redlock.Option
	if c.Fair {
		opts = append(opts, redlock.WithFair())
	}
	return newRedlock(b, c.URLs, opts...)
}

// play runs the callers.
func (c contender) play(b testing.TB) played {
	p, l := c.locker(b)
	out := played{Locks: make([]int, c.Callers)}
	before := requests(p)
	time.Sleep(time.Until(c.Begin))
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), c.For)
	defer cancel()
	for i := range c.Callers {
		wg.Go(func() {
			longest := time.Duration(0)
			for ctx.Err() == nil {
				began := time.Now()
				unlock, err := l.lock(ctx, "wanted")
				longest = max(longest, time.Since(began))
				if err == nil {
					out.Locks[i]++
					_ = unlock()
				}
			}
			mu.Lock()
			out.Longest = max(out.Longest, longest)
			mu.Unlock()
		})
	}
	wg.Wait()
	out.Took = time.Since(start)
	out.Requests = requests(p) - before
	return out
}

func requests(p *redlock.Pool) (n uint64) {
	if p == nil {
		return 0
	}
	for _, node := range p.Stats().Nodes {
		n += node.Requests
	}
	return n
}

// hold keeps many resources until its input ends.
func (c contender) hold(b testing.TB) {
	p, _ := c.locker(b)
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < c.Hold; i += 64 {
				_, err := p.Lock(context.Background(), fmt.Sprint("held-", i))
				require.NoError(b, err)
			}
		})
	}
	wg.Wait()
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// obey locks and unlocks one resource whenever it is told to, and says when.
func (c contender) obey(b testing.TB) {
	_, l := c.locker(b)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		unlock, err := l.lock(context.Background(), "wanted")
		require.NoError(b, err)
		fmt.Println("locked")
		if !in.Scan() {
			return
		}
		at := time.Now().UnixNano()
		require.NoError(b, unlock())
		fmt.Println(at)
	}
}

// process is a contender as its benchmark sees it.
type process struct {
	b   testing.TB
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
	end func() error // of its input
	out *bufio.Scanner
}

func start(b testing.TB, c contender) *process {
	text, err := json.Marshal(c)
	require.NoError(b, err)
	cmd := exec.Command(os.Args[0], "-test.benchtime=1x")
	cmd.Env = append(os.Environ(), contenderEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	p := &process{b: b, cmd: cmd, in: in, end: in.Close, out: bufio.NewScanner(out)}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// say sends a line, hear reads one.
func (p *process) say() {
	_, err := p.in.Write([]byte("go\n"))
	require.NoError(p.b, err)
}

func (p *process) hear() string {
	for p.out.Scan() {
		if line := p.out.Text(); line != "" && !strings.HasPrefix(line, "redis:") {
			return line
		}
	}
	p.b.Fatal("the other process has ended")
	return ""
}

// result is what its callers got.
func (p *process) result() (out played) {
	require.NoError(p.b, json.Unmarshal([]byte(p.hear()), &out))
	return out
}

package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const crashEnv = "REDLOCK_TEST_CRASH"

func TestServersDieWithACrashedTest(t *testing.T) {
	if !slices.Contains(Providers(t), Processes) {
		return
	}

	// 1. Another run of this binary starts servers and says which.
	victim := exec.Command(os.Args[0], "-test.run=^TestCrashVictim$")
	victim.Env = append(os.Environ(), crashEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	defer func() { _ = victim.Process.Kill() }()
	var pids []int
	for lines := bufio.NewScanner(out); len(pids) < 2 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, 0))
			pids = append(pids, pid)
		}
	}
	require.Len(t, pids, 2)

	// 2. It has no time to clean up.
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, pid := range pids {
		require.NoError(t, await(ctx, nil, func(context.Context) error { return gone(pid) }))
	}
}

// TestCrashVictim is the test that TestServersDieWithACrashedTest kills.
func TestCrashVictim(t *testing.T) {
	if os.Getenv(crashEnv) == "" {
		return
	}
	set := Start(t, 2, WithProvider(Processes))
	set.Server(1).Freeze()
	for _, s := range set.servers {
		fmt.Println("pid", s.node.(*process).pid)
	}
	<-t.Context().Done()
}

// gone returns nil if no such process runs. An orphan that nobody waited for yet does not run.
func gone(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && strings.Contains(string(stat), ") Z ") {
		return nil
	}
	return errors.Join(err, fmt.Errorf("process %d is still there", pid))
}

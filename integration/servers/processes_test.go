package servers

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startOneProcess gives a process, or nil where there can be none.
func startOneProcess(t *testing.T) *process {
	t.Helper()
	if !slices.Contains(Providers(t), Processes) {
		return nil
	}
	return Start(t, 1, WithProvider(Processes)).Server(0).node.(*process)
}

func TestServerIsNotMistakenForAnotherOneOnItsPort(t *testing.T) {
	first := startOneProcess(t)
	if first == nil {
		return
	}
	second := &process{binary: first.binary, dir: t.TempDir(), port: first.port}
	require.ErrorIs(t, second.run(t.Context(), false), errPortTaken)
}

func TestServerComesBackOnceItsPortIsFree(t *testing.T) {
	p := startOneProcess(t)
	if p == nil {
		return
	}
	require.NoError(t, p.kill(t.Context()))
	squatter, err := net.Listen("tcp", p.addr())
	require.NoError(t, err)

	up := make(chan error, 1)
	go func() { up <- p.up(context.Background(), false) }()
	refused := func(context.Context) error {
		_, err := os.Stat(filepath.Join(p.dir, "redis-3.log")) // the second try after the first start
		return err
	}
	require.NoError(t, await(t.Context(), nil, refused))
	require.NoError(t, squatter.Close())
	require.NoError(t, <-up)
}

func TestServerThatDoesNotStartShowsItsLog(t *testing.T) {
	if startOneProcess(t) == nil {
		return
	}
	_, err := startProcesses(t, 1, config{args: []string{"--no-such-setting", "1"}})
	require.ErrorIs(t, err, errEnded)
	require.Contains(t, err.Error(), "no-such-setting")
}

func TestTailIsTheEnd(t *testing.T) {
	require.Equal(t, "b\nc", tail([]byte("a\nb\nc\n"), 2))
	require.Equal(t, "a", tail([]byte("a\n"), 2))
	require.Empty(t, tail(nil, 2))
	require.Len(t, strings.Split(tail([]byte(strings.Repeat("x\n", 100)), 20), "\n"), 20)
}

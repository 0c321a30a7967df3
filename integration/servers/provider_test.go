package servers

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
)

func TestNothingIsLeftAfterTheTest(t *testing.T) {
	for _, p := range Providers(t) {
		t.Run(string(p), func(t *testing.T) {
			var nodes []node
			t.Run("the test", func(t *testing.T) {
				set := Start(t, 4, WithProvider(p))
				for _, s := range set.servers {
					nodes = append(nodes, s.node)
				}
				set.Server(0).Freeze()
				set.Server(1).Kill()
				if set.Server(2).CanDisconnect() {
					set.Server(2).Disconnect()
				}
			})
			require.Len(t, nodes, 4)
			for _, n := range nodes {
				requireGone(t, n)
			}
		})
	}
}

// requireGone fails the test if there is anything left of a node.
func requireGone(t *testing.T, n node) {
	t.Helper()
	switch n := n.(type) {
	case *process:
		require.ErrorIs(t, syscall.Kill(n.pid, 0), syscall.ESRCH)
		require.NoDirExists(t, n.dir)
	case *containerNode:
		require.Nil(t, n.running)
		found, err := n.engine.client.ContainerList(t.Context(), client.ContainerListOptions{
			All:     true,
			Filters: make(client.Filters).Add("label", testLabel+"="+n.cfg.name),
		})
		require.NoError(t, err)
		require.Empty(t, found.Items)
	}
	require.NoError(t, awaitRefusal(t.Context(), n.addr()))
}

func TestForcedProviderIsTheOnlyOne(t *testing.T) {
	for _, p := range Providers(t) {
		t.Setenv(providerEnv, string(p))
		require.Equal(t, []Provider{p}, Providers(t))
		require.Equal(t, p, Start(t, 1).Provider())
	}
}

func TestUnknownProviderIsRefused(t *testing.T) {
	t.Setenv(providerEnv, "cloud")
	_, err := choose(config{})
	require.ErrorContains(t, err, "it must be containers, processes or embedded")
}

func TestForcedProviderThatIsMissingSaysWhatToInstall(t *testing.T) {
	t.Setenv(providerEnv, string(Processes))
	t.Setenv("REDLOCK_REDIS_SERVER", "no-such-redis-server")
	_, err := choose(config{})
	require.ErrorContains(t, err, "apt-get install redis-server")
}

func TestOptionsThatAKindCannotHaveAreRefused(t *testing.T) {
	for _, row := range []struct {
		provider Provider
		option   Option
		word     string
	}{
		{Containers, WithUnixSocket(), "WithUnixSocket"},
		{Embedded, WithUnixSocket(), "WithUnixSocket"},
		{Containers, WithClock(), "WithClock"},
		{Embedded, WithAOF(), "WithAOF"},
		{Embedded, WithRDB(), "WithRDB"},
		{Embedded, WithArgs("--maxmemory", "2mb"), "WithArgs"},
	} {
		var cfg config
		row.option(&cfg)
		err := cfg.unmet(row.provider)
		require.ErrorContains(t, err, row.word)
	}
}

func TestImageThatCannotBePulledSaysWhatToRun(t *testing.T) {
	if !slices.Contains(Providers(t), Containers) {
		return // nobody to ask for an image
	}
	t.Setenv(imageEnv, "localhost:1/none:none")
	_, err := startContainers(t, 1, config{name: t.Name()})
	require.ErrorContains(t, err, "run integration/image.sh and set REDLOCK_TEST_IMAGE=redlock-test-redis:local")
}

func TestContainersCarryTheirTest(t *testing.T) {
	if !slices.Contains(Providers(t), Containers) {
		return
	}
	n := Start(t, 1, WithProvider(Containers)).Server(0).node.(*containerNode)
	got, err := n.running.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, t.Name(), got.Config.Labels[testLabel])
}

func TestContainerWhosePortIsTakenGetsAnother(t *testing.T) {
	if !slices.Contains(Providers(t), Containers) {
		return
	}
	first := Start(t, 1, WithProvider(Containers)).Server(0).node.(*containerNode)
	second := *first
	second.running = nil
	require.ErrorIs(t, second.create(t.Context()), errPortTaken)

	require.NoError(t, untilPortFree(t.Context(), second.tryPort))
	t.Cleanup(func() { require.NoError(t, second.close(context.Background())) })
	require.NotEqual(t, first.port, second.port)
}

package servers

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// Provider is a kind of server.
type Provider string

// The kinds of server, as REDLOCK_TEST_PROVIDER names them. If nothing is forced, Start takes processes where there is
// a redis-server binary (in PATH, or REDLOCK_REDIS_SERVER), else containers where a Docker engine answers, else
// embedded nodes.
const (
	Processes  Provider = "processes"
	Containers Provider = "containers"
	Embedded   Provider = "embedded"
)

const providerEnv = "REDLOCK_TEST_PROVIDER"

// kind is what this package knows about a provider.
type kind struct {
	provider Provider
	// missing says in a sentence what to install, if the provider is not to be had.
	missing func() error
	// start gives n servers. Together with an error it returns those that need closing, nil in place of the others.
	start func(t testing.TB, n int, cfg config) ([]node, error)
	// hint follows the error if the servers were started and do not answer.
	hint string
}

// kinds returns the providers, the preferred one first.
func kinds() []kind {
	return []kind{
		{Processes, processesMissing, startProcesses, ""},
		{Containers, containersMissing, startContainers, " (set TESTCONTAINERS_HOST_OVERRIDE to the host where the " +
			"engine publishes ports, for example 127.0.0.1)"},
		{Embedded, embeddedMissing, startEmbedded, ""},
	}
}

// Providers returns the kinds of server that tests can have here, the one that Start takes by itself first; if one is
// forced, that one alone. Containers are only listed if their image is there or there is no redis-server either:
// nothing is downloaded merely because it could be.
//
//	for _, p := range servers.Providers(t) {
//		t.Run(string(p), func(t *testing.T) { set := servers.Start(t, 5, servers.WithProvider(p)) ... })
//	}
func Providers(t testing.TB) []Provider {
	t.Helper()
	if forced := os.Getenv(providerEnv); forced != "" {
		k, err := find(Provider(forced))
		if err == nil {
			err = k.missing()
		}
		if err != nil {
			t.Fatalf("servers: %v", err)
		}
		return []Provider{k.provider}
	}
	var found []Provider
	for _, k := range kinds() {
		if k.missing() != nil {
			continue
		}
		if k.provider == Containers && slices.Contains(found, Processes) && !imageIsLocal() {
			continue
		}
		found = append(found, k.provider)
	}
	return found
}

// choose returns the kind that the test or the environment asks for, else the first that is to be had.
func choose(cfg config) (kind, error) {
	wanted := cfg.provider
	if wanted == "" {
		wanted = Provider(os.Getenv(providerEnv))
	}
	if wanted != "" {
		k, err := find(wanted)
		if err != nil {
			return kind{}, err
		}
		if err := k.missing(); err != nil {
			return kind{}, err
		}
		return k, cfg.unmet(k.provider)
	}
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.missing() == nil }) // the last kind is always there
	return all[i], cfg.unmet(all[i].provider)
}

func find(p Provider) (kind, error) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.provider == p })
	if i < 0 {
		return kind{}, fmt.Errorf("%s is %q; it must be containers, processes or embedded", providerEnv, p)
	}
	return all[i], nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/seed71a1c8e3/redlock/redlocktest"
	"github.com/stretchr/testify/require"
)

// TestMain is a client process, too: the soak starts this binary again.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	lockers["broken"], withFences["broken"] = newBroken, true
	lockers["panicking"] = func(assignment, *redlocktest.Recorder) (locker, error) { panic("this client is broken") }
	if config := os.Getenv(clientEnv); config != "" {
		if err := client(config); err != nil {
			fmt.Fprintln(os.Stderr, "soak client:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// short is a soak for a test.
func short(t *testing.T, p servers.Provider) options {
	t.Helper()
	o := defaults()
	o.provider, o.out = string(p), filepath.Join(t.TempDir(), "out")
	return o
}

// onServers are the providers that can be used; a node inside of this process cannot be killed.
func onServers(t *testing.T) (all []servers.Provider) {
	t.Helper()
	for _, p := range servers.Providers(t) {
		if p != servers.Embedded {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		t.Skip("needs redis-server processes or containers")
	}
	return all
}

func mustSoak(t *testing.T, o options) (kept bool, text string) {
	t.Helper()
	var out bytes.Buffer
	kept, err := soak(context.Background(), o, &out)
	require.NoError(t, err, out.String())
	return kept, out.String()
}

func TestAMinuteOfFaultsBreaksNoPromise(t *testing.T) {
	lengths := map[servers.Provider]time.Duration{servers.Processes: 20 * time.Second, servers.Containers: 15 * time.Second}
	for _, p := range onServers(t) {
		t.Run(string(p), func(t *testing.T) {
			o := short(t, p)
			o.duration, o.seed = lengths[p], uint64(time.Now().UnixNano())
			o.pace = 600 * time.Millisecond
			if p == servers.Containers { // to start one takes seconds, and the more the busier the machine is
				o.ttl, o.pace = 6*time.Second, 2*time.Second
			}
			kept, text := mustSoak(t, o)
			t.Log(text)
			require.True(t, kept, text)
		})
	}
}

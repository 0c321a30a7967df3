package integration_test

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

func TestEverythingWorksOverTLS(t *testing.T) { // FAULTS 5
	for name, demand := range map[string]string{"the server's certificate": "no", "and the client's": "yes"} {
		t.Run(name, func(t *testing.T) {
			onReal(t, func(t *testing.T, r *rig) {
				if r.Provider() != servers.Processes {
					t.Skip("needs servers that read the test's files")
				}
				authority := newAuthority(t)
				dir := t.TempDir()
				authority.issue(t, dir)
				config := &tls.Config{RootCAs: authority.pool(), MinVersion: tls.VersionTLS12}
				clients := func() (cs []*redis.Client) {
					for i := range r.Len() {
						c := redis.NewClient(&redis.Options{Addr: r.tlsFor(i, dir, demand), TLSConfig: config})
						r.last(func() { _ = c.Close() })
						cs = append(cs, c)
					}
					return cs
				}
				const ttl = time.Second
				if demand == "yes" {
					// 1. Who shows no certificate is told so.
					p := r.poolOn(clients(), redlock.WithTTL(ttl))
					eventually(t, patience, "each node says why", func() error {
						_, err := p.TryLock(bg, "a")
						require.ErrorIs(t, err, redlock.ErrNoQuorum)
						for _, n := range p.Stats().Nodes {
							if !strings.Contains(n.Down, "tls: certificate required") {
								return err
							}
						}
						return nil
					})
					pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert"), filepath.Join(dir, "key"))
					require.NoError(t, err)
					config = config.Clone()
					config.Certificates = []tls.Certificate{pair}
				}
				p, rival := r.poolOn(clients(), redlock.WithTTL(ttl)), r.poolOn(clients(), redlock.WithTTL(ttl))
				warm(t, p)
				warm(t, rival)

				// 2. Lock, renew, extend, keep others out; connections that are cut are replaced.
				l := mustLock(t, p)
				r.owned(l, 5, nodeTimeout)
				renewals(t, p, 2)
				r.each(all, func(s *servers.Server) { s.Client().Do(bg, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
				_, err := rival.TryLock(bg, "a")
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.NoError(t, l.Extend(bg))
				require.NoError(t, l.Unlock(bg))
				l, err = rival.TryLock(bg, "a")
				require.NoError(t, err)
				r.owned(l, 5, ttl) // a release on a new connection may come behind it, and it is topped up

				// 3. Lose, and take again.
				r.freeze(majority...)
				require.Less(t, awaitLoss(t, l), slack)
				require.ErrorIs(t, l.Err(), redlock.ErrNoQuorum)
				r.thaw(majority...)
				warm(t, p)
				warm(t, rival)
				require.NoError(t, mustLock(t, rival).Unlock(bg))
				r.gone()
			})
		})
	}
}

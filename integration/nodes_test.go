package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed71a1c8e3/redlock"
	"github.com/seed71a1c8e3/redlock/integration/servers"
	"github.com/stretchr/testify/require"
)

func TestEachNodeSaysWhyItFailed(t *testing.T) { // FAULTS 5
	onReal(t, func(t *testing.T, r *rig) {
		c := r.Server(4).Client()
		require.NoError(t, c.Do(bg, "ACL", "SETUSER", "guarded", "on", ">right", "~*", "+@all").Err())
		defer c.Do(bg, "ACL", "DELUSER", "guarded")
		const secret = "wrong-secret"
		urls := append(r.URLs()[:4:4], // of seven, four are well
			"redis://"+closedPort(t),
			"redis://guarded:"+secret+"@"+r.Server(4).Addr(),
			"redis://no-such-host.invalid:6379",
		)
		l := mustLock(t, r.poolOf(urls))
		require.NoError(t, l.Unlock(bg))

		// With TLS where the server speaks plainly; and one pool that needs every node, to hear of each.
		urls = append(urls, "rediss://"+r.Server(3).Addr())
		urls = slices.Delete(urls, 3, 4)
		all := r.poolOf(urls, redlock.WithQuorum(redlock.All))
		want := map[int]string{3: "connection refused", 4: "WRONGPASS", 5: "no-such-host.invalid", 6: "tls"}
		_, err := all.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotContains(t, err.Error(), secret)
		eventually(t, patience, "each node has its reason", func() error {
			for i, word := range want {
				down := all.Stats().Nodes[i].Down
				require.NotContains(t, down, secret)
				if !strings.Contains(down, word) && !(i >= 5 && strings.Contains(down, "no answer within")) { // a resolver, or a server, that waits for more
					return fmt.Errorf("node %d says %q", i, down)
				}
			}
			return nil
		})
	})
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestNoReplyMakesAPanic(t *testing.T) { // FAULTS 8
	for name, reply := range map[string]string{
		"nil": "$-1\r\n", "another's type": "+OK\r\n", "wrong shape": "*3\r\n:1\r\n:2\r\n:3\r\n", "huge bulk": "$9999999999\r\n",
		"huge array": "*999999999\r\n", "deep": strings.Repeat("*1\r\n", 10_000), "noise": "\x00\xff\x17\r\n", "number": ":-77\r\n",
		"HTTP": "HTTP/1.1 400 Bad Request\r\n\r\n", "endless line": "+" + strings.Repeat("x", 1<<20), "error": "-\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, r *rig) {
				tapes, urls := r.behindTapes()
				p := r.poolOf(urls)
				warm(t, p)

				// 1. A minority lies: nobody minds.
				tapes[0].forge(reply)
				tapes[1].forge(reply)
				for range 3 {
					l := mustLock(t, p)
					require.NoError(t, l.Extend(bg))
					require.NoError(t, l.Unlock(bg))
				}

				// 2. A majority lies: no quorum, with the reasons.
				tapes[2].forge(reply)
				within(t, nodeTimeout, "TryLock", func() {
					_, err := p.TryLock(bg, "a")
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					require.GreaterOrEqual(t, len(reasons(t, err)), 3)
				})

				// 3. They come to their senses.
				for _, tape := range tapes {
					tape.forge("")
				}
				warm(t, p)
			})
		})
	}
}

func TestLockWaitsForNodesToComeBack(t *testing.T) { // FAULTS 9
	onEvery(t, func(t *testing.T, r *rig) {
		p := r.pool(redlock.WithRetry(20*time.Millisecond, 200*time.Millisecond))
		r.each(all, (*servers.Server).Kill)
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Len(t, reasons(t, err), 5)

		back := make(chan time.Time, 1)
		waiting := make(chan error, 1)
		go func() {
			l, err := p.Lock(bg, "a")
			back <- time.Now()
			if err == nil {
				err = l.Unlock(bg)
			}
			waiting <- err
		}()
		eventually(t, patience, "it has tried some times", func() error { return is(p.Stats().NoQuorum > 3) })
		r.each(all, (*servers.Server).Restart)
		restarted := time.Now()
		require.NoError(t, <-waiting)
		require.Less(t, (<-back).Sub(restarted), nodeTimeout+200*time.Millisecond+slack, "within a probe and a pause")
	})
}

func TestTLSIsSpokenAndChecked(t *testing.T) { // FAULTS 5
	onReal(t, func(t *testing.T, r *rig) {
		if r.Provider() != servers.Processes {
			t.Skip("needs servers that read the test's files")
		}
		trusted, strange := newAuthority(t), newAuthority(t)
		dir := t.TempDir()
		trusted.issue(t, dir)
		clients := func(ca func(i int) *x509.CertPool) []*redis.Client {
			var cs []*redis.Client
			for i := range r.Len() {
				o, err := redis.ParseURL("rediss://" + r.tls(i, dir))
				require.NoError(t, err)
				o.TLSConfig.RootCAs = ca(i)
				cs = append(cs, redis.NewClient(o))
				r.last(func() { _ = cs[i].Close() })
			}
			return cs
		}
		p := r.poolOn(clients(func(int) *x509.CertPool { return trusted.pool() }))
		warm(t, p)
		l := mustLock(t, p)
		r.owned(l, 5, nodeTimeout+slack)
		require.NoError(t, l.Extend(bg))
		require.NoError(t, l.Unlock(bg))

		// One does not know whom to trust.
		wrong := func(i int) *x509.CertPool {
			if i == 0 {
				return strange.pool()
			}
			return trusted.pool()
		}
		p = r.poolOn(clients(wrong))
		l = mustLock(t, p)
		require.NoError(t, l.Unlock(bg))
		eventually(t, patience, "it says why", func() error {
			if down := p.Stats().Nodes[0].Down; !strings.Contains(down, "certificate") {
				return fmt.Errorf("it says %q", down)
			}
			return nil
		})

		// With a URL alone the system's authorities decide: none of them signed this.
		open := r.poolOf([]string{"rediss://" + r.tls(0, dir)})
		eventually(t, patience, "it says why", func() error { // to read the system's takes longer than a node timeout at times
			_, err := open.TryLock(bg, "a")
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			if !strings.Contains(err.Error(), "certificate") {
				return err
			}
			return nil
		})
	})
}

// tls makes a server speak TLS until the end of the test, and returns the address.
func (r *rig) tls(i int, dir string) string { return r.tlsFor(i, dir, "no") }

// tlsFor is tls; demand says whether clients have to show a certificate, yes or no.
func (r *rig) tlsFor(i int, dir, demand string) string {
	c := r.Server(i).Client()
	if port := c.ConfigGet(bg, "tls-port").Val()["tls-port"]; port != "0" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	r.last(func() { c.ConfigSet(bg, "tls-port", "0") })
	var addr string
	eventually(r.t, patience, "a port for TLS", func() error { // another may take it first
		addr = closedPort(r.t)
		_, port, _ := net.SplitHostPort(addr)
		return c.Do(bg, "CONFIG", "SET", "tls-cert-file", filepath.Join(dir, "cert"), "tls-key-file", filepath.Join(dir, "key"),
			"tls-ca-cert-file", filepath.Join(dir, "ca"), "tls-auth-clients", demand, "tls-port", port).Err()
	})
	return addr
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	der  []byte
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	require.NoError(t, err)
	return authority{cert, der, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	cert, err := x509.ParseCertificate(a.der)
	if err == nil {
		pool.AddCert(cert)
	}
	return pool
}

// issue writes the files cert, key and ca.
func (a authority) issue(t *testing.T, dir string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: secret},
		"ca": {Type: "CERTIFICATE", Bytes: a.der},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

package redlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

func TestBadOptionsAreRefusedWithAdvice(t *testing.T) { // FAULTS 34
	urls := []string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3", "redis://10.0.0.4", "redis://10.0.0.5"}
	for name, c := range map[string]struct {
		opts []Option
		want string
	}{
		"zero TTL":              {[]Option{WithTTL(0)}, "must be positive"},
		"negative TTL":          {[]Option{WithTTL(-time.Second)}, "must be positive"},
		"tiny TTL":              {[]Option{WithTTL(time.Microsecond)}, "the smallest that works is 4ms"},
		"TTL below the floor":   {[]Option{WithTTL(time.Second), WithDrift(0.01, time.Second)}, "the smallest that works is 1.012s"},
		"zero lease":            {[]Option{WithLease(0)}, "must be positive"},
		"lease and max hold":    {[]Option{WithLease(time.Second), WithMaxHold(time.Minute)}, "exclude each other"},
		"zero max hold":         {[]Option{WithMaxHold(0)}, "must be positive"},
		"zero node timeout":     {[]Option{WithNodeTimeout(0)}, "at least 1ms"},
		"long node timeout":     {[]Option{WithTTL(time.Second), WithNodeTimeout(300 * time.Millisecond)}, "set at most 250ms"},
		"below a majority":      {[]Option{WithQuorum(AtLeast(2))}, "at least 3 must grant"},
		"no quorum at all":      {[]Option{WithQuorum(AtLeast(0))}, "at least 3 must grant"},
		"negative quorum":       {[]Option{WithQuorum(AtLeast(-1))}, "at least 3 must grant"},
		"above N":               {[]Option{WithQuorum(AtLeast(6))}, "use at most 5"},
		"factor above a fifth":  {[]Option{WithDrift(0.3, 0)}, "from 0 to 0.2"},
		"factor not a number":   {[]Option{WithDrift(math.NaN(), 0)}, "from 0 to 0.2"},
		"negative floor":        {[]Option{WithDrift(0.01, -1)}, "not negative"},
		"zero retry":            {[]Option{WithRetry(0, time.Second)}, "must be positive"},
		"retry upside down":     {[]Option{WithRetry(time.Second, time.Millisecond)}, "not below it"},
		"long label":            {[]Option{WithLabel(strings.Repeat("x", 65))}, "at most 64 bytes"},
		"label with a new line": {[]Option{WithLabel("a\nb")}, "printable"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(urls, c.opts...)
			require.ErrorContains(t, err, c.want)
			require.True(t, strings.HasPrefix(err.Error(), "redlock: "), err.Error())
		})
	}
}

func TestExtremeDurationsWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps, WithTTL(math.MaxInt64))
		l := mustLock(t, p)
		time.Sleep(24 * time.Hour)
		require.True(t, l.Valid())
		require.NoError(t, l.Extend(bg))
		require.Greater(t, time.Until(l.ValidUntil()), 90*365*24*time.Hour)
		require.NoError(t, l.Unlock(bg))

		p = testPool(t, ps, WithRetry(math.MaxInt64, math.MaxInt64))
		require.NoError(t, mustLock(t, p).Unlock(bg))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		for _, x := range ps {
			x.do(func() { x.Keys["lock:a"] = model.Value{S: "another's"} })
		}
		_, err := p.Lock(ctx, "a")
		require.ErrorIs(t, err, ErrHeld)
		for _, x := range ps {
			x.flush()
		}

		p = testPool(t, ps, WithTTL(1), WithDrift(0, 0))
		l = mustLock(t, p)
		require.NoError(t, l.Unlock(bg))

		p = testPool(t, ps, WithTTL(4*time.Millisecond))
		l = mustLock(t, p)
		time.Sleep(time.Second)
		require.True(t, l.Valid())
		require.NoError(t, l.Unlock(bg))
	})
}

func TestBadNodesAreRefusedWithAdvice(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379"})
	same := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", DB: 3})
	defer c.Close()
	defer same.Close()
	for name, r := range map[string]struct {
		clients []*redis.Client
		want    string
	}{
		"none":         {nil, "no nodes"},
		"nil client":   {[]*redis.Client{c, nil}, "client 2 of 2 is nil"},
		"same client":  {[]*redis.Client{c, c}, "clients 1 and 2 are the same"},
		"same address": {[]*redis.Client{c, same}, "the same address 10.0.0.1:6379"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(r.clients)
			require.ErrorContains(t, err, r.want)
		})
	}
	_, err := Open(nil)
	require.ErrorContains(t, err, "no nodes")
}

func TestNoErrorShowsAPassword(t *testing.T) {
	const secret = "s3cr3t"
	for _, u := range []string{
		"redis://user:" + secret + "@host:port", "redis://:" + secret + "@[::1", "redis://:" + secret + "%zz@host",
		"http://user:" + secret + "@host", secret, "redis://:" + secret + "@host/db", "redis://:" + secret + "@host/1/2",
		"redis://:" + secret + "#x@host", "redis://:" + secret + "@host?password=" + secret, "unix://:" + secret + "@",
		"redis://user:" + secret + " @host", "redis://:" + secret + "@host?db=" + secret, secret + ":" + secret, "rediss://:" + secret + "\x7f@host",
	} {
		_, err := Open([]string{u})
		require.Error(t, err, u)
		require.NotContains(t, err.Error(), secret)
		require.Contains(t, err.Error(), "node 1 of 1")
	}

	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 1)
		ps[0].Errs["hello"], ps[0].Errs["auth"] = "ERR unknown command", "WRONGPASS invalid username-password pair or user is disabled."
		var log bytes.Buffer
		c := redis.NewClient(&redis.Options{Addr: ps[0].name, Username: "u", Password: secret, Dialer: ps[0].dial})
		defer c.Close()
		p, err := New([]*redis.Client{c}, WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		require.NoError(t, err)
		_, err = p.TryLock(bg, "a")
		require.ErrorContains(t, err, "WRONGPASS")
		require.NoError(t, p.Close())
		for _, s := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err), log.String(), fmt.Sprintf("%+v", p.Stats())} {
			require.NotContains(t, s, secret)
		}
		require.Contains(t, log.String(), "WRONGPASS")
	})
}

func TestAServerThatQuotesItsArgumentsShowsNoPassword(t *testing.T) {
	const secret = "s3cr3t"
	for _, said := range []string{
		"ERR unknown command 'auth', with args beginning with: '" + secret + "' ", "ERR wrong password " + secret, "ERR user joe has no " + secret,
	} {
		bubble(t, func(t *testing.T) {
			ps := newPeers(t, 1)
			ps[0].Errs["hello"], ps[0].Errs["auth"] = "ERR unknown command 'HELLO', with args beginning with: '2' 'auth' '"+secret+"' ", said
			c := redis.NewClient(&redis.Options{Addr: ps[0].name, Username: "joe", Password: secret, Dialer: ps[0].dial})
			defer c.Close()
			p, err := New([]*redis.Client{c})
			require.NoError(t, err)
			defer p.Close()
			_, err = p.TryLock(bg, "a")
			require.ErrorIs(t, err, ErrNoQuorum)
			for _, s := range []string{err.Error(), fmt.Sprintf("%+v", p.Stats())} {
				require.NotContains(t, s, secret)
				require.NotContains(t, s, "joe")
			}
		})
	}
}

func TestANodeIsNamedByItsAddress(t *testing.T) {
	p, err := Open([]string{"redis://u:pw@10.0.0.1:7000/2", "unix://u:pw@/run/redis.sock", "rediss://:pw@example.com"})
	require.NoError(t, err)
	defer p.Close()
	var names []string
	for _, n := range p.Stats().Nodes {
		names = append(names, n.Node)
	}
	require.Equal(t, []string{"10.0.0.1:7000", "/run/redis.sock", "example.com:6379"}, names)
}

func TestBadArgumentsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		for name, c := range map[string]struct {
			resources []string
			want      string
		}{
			"none":     {nil, "no resources"},
			"empty":    {[]string{"a", ""}, "name is empty"},
			"too long": {[]string{strings.Repeat("x", 64<<10+1)}, "at most 65536 bytes"},
			"too many": {make([]string, 1025), "at most 1024"},
			"reserved": {[]string{"redlock:fences"}, "own"},
		} {
			_, err := p.TryMultiLock(bg, c.resources)
			require.ErrorContains(t, err, c.want, name)
			require.Less(t, len(err.Error()), 400, name)
		}
		var none context.Context
		_, err := p.Lock(none, "a")
		require.ErrorContains(t, err, "ctx is nil")
		l := mustLock(t, p)
		require.ErrorContains(t, l.Extend(none), "ctx is nil")
		require.NoError(t, l.Unlock(none))
		_, err = p.Lock(bg, "a", WithTTL(-1))
		require.ErrorContains(t, err, "must be positive")
		_, err = p.Lock(bg, "a", WithLease(time.Second), WithMaxHold(time.Second))
		require.ErrorContains(t, err, "exclude each other")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err = p.Lock(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestAnyNameWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		for _, name := range []string{"{a}b", "a b", "\x00\xff\r\n", "ключ", strings.Repeat("n", 64<<10), "*", "lock:lock:"} {
			l, err := p.Lock(bg, name)
			require.NoError(t, err)
			_, err = p.TryLock(bg, name)
			require.ErrorIs(t, err, ErrHeld)
			require.Less(t, len(err.Error()), 1500)
			require.NoError(t, l.Unlock(bg))
		}
		synctest.Wait()
		require.Zero(t, leftovers(ps))
	})
}

func TestForeignDataIsReportedAndUntouched(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		for _, x := range ps {
			x.Keys["lock:a"] = model.Value{Foreign: true}
		}
		p := testPool(t, ps)
		_, err := p.TryLock(bg, "a")
		require.ErrorIs(t, err, ErrNoQuorum)
		require.Contains(t, err.Error(), "WRONGTYPE")
		_, err = p.TryMultiLock(bg, []string{"a", "b"})
		require.Error(t, err)
		time.Sleep(5 * time.Second)
		require.Equal(t, 3, leftovers(ps))
		for _, x := range ps {
			require.True(t, x.Keys["lock:a"].Foreign)
		}
	})
}

func TestACallsOptionsOverrideThePools(t *testing.T) {
	o, err := newPoolOptions([]Option{WithLease(time.Minute), WithLabel("pool"), WithRetry(1, 2)})
	require.NoError(t, err)
	d, pause, err := o.terms(nil)
	require.NoError(t, err)
	require.Equal(t, terms{ttl: time.Minute, validity: 59398 * time.Millisecond, nodeTimeout: 250 * time.Millisecond, lease: true, label: "pool"}, d)
	require.Equal(t, retry{1, 2}, pause)

	d, _, err = o.terms([]LockOption{WithTTL(400 * time.Millisecond), WithLabel("call")})
	require.NoError(t, err)
	require.False(t, d.lease, "a TTL asks for renewals")
	require.Equal(t, 100*time.Millisecond, d.nodeTimeout, "a quarter of the TTL")
	require.Equal(t, "call", d.label)

	d, _, err = o.terms([]LockOption{WithMaxHold(time.Hour)})
	require.NoError(t, err)
	require.False(t, d.lease)
	require.Equal(t, time.Hour, d.maxHold)

	o, err = newPoolOptions([]Option{WithMaxHold(time.Hour)})
	require.NoError(t, err)
	d, _, err = o.terms([]LockOption{WithLease(time.Second)})
	require.NoError(t, err)
	require.True(t, d.lease)
	require.Zero(t, d.maxHold)
}

func TestTheDefaults(t *testing.T) {
	o, err := newPoolOptions(nil)
	require.NoError(t, err)
	d, pause, err := o.terms(nil)
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, d.ttl)
	require.Equal(t, 250*time.Millisecond, d.nodeTimeout)
	require.Equal(t, retry{20 * time.Millisecond, time.Second}, pause)
	require.Equal(t, "lock:", o.prefix)
	require.Equal(t, defaultLabel, d.label)
	require.Contains(t, d.label, ":")
}

func TestEvenAndSingleNodesAreWarnedOf(t *testing.T) { // FAULTS 34
	bubble(t, func(t *testing.T) {
		for n, want := range map[int]int{1: 1, 2: 1, 3: 0, 4: 1, 5: 0} {
			var r recorder
			p := testPool(t, newPeers(t, n), WithObserver(r.observer()))
			l := mustLock(t, p)
			require.NoError(t, l.Unlock(bg))
			synctest.Wait()
			require.Len(t, r.of("warning"), want, "%d nodes", n)
		}
	})
}

func TestTokensAreRandomAndCarryTheLabel(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := newToken("me")
		require.True(t, strings.HasSuffix(token, " me"))
		require.Len(t, token, 22+len(" me"))
		require.False(t, seen[token])
		seen[token] = true
	}
	require.Len(t, newToken(""), 22)
}

func TestQuorumErrorSpeaksForTheRoundAlone(t *testing.T) {
	e := &QuorumError{Op: "acquire", Resources: []string{"a"}, Need: 3, verdict: ErrNoQuorum, Nodes: []*NodeError{
		{"n1", reasonOf(context.DeadlineExceeded)}, {"n2", reasonOf(fmt.Errorf("x: %w", ErrHeld))}, {"n3", reasonOf(redis.Nil)},
		{"n4", reasonOf(context.Canceled)}, {"n5", reasonOf(nil)},
	}}
	require.ErrorIs(t, e, ErrNoQuorum)
	for _, other := range []error{ErrHeld, ErrLost, context.DeadlineExceeded, context.Canceled} {
		require.NotErrorIs(t, e, other)
	}
	require.ErrorIs(t, e.withContext(context.Canceled), context.Canceled)
	var n *NodeError
	require.ErrorAs(t, e, &n)
	require.Equal(t, "n1", n.Node)
	require.False(t, errors.Is(n, context.DeadlineExceeded))
}

package redlock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// clientLog is what go-redis writes to stderr by itself. It cannot be asked for the logger that it had.
type clientLog struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (l *clientLog) Printf(_ context.Context, format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = fmt.Appendf(l.text, format+"\n", v...)
	fmt.Fprintf(os.Stderr, format+"\n", v...)
}

func TestNothingThatIsPrintedShowsAPassword(t *testing.T) {
	const secret = "s3cr3t"
	var client clientLog
	redis.SetLogger(&client)
	bubble(t, func(t *testing.T) {
		// 1. Five nodes; one of them refuses the password, and quotes it.
		ps := newPeers(t, 5)
		ps[4].Errs["hello"], ps[4].Errs["auth"] = "ERR unknown command 'hello', with args beginning with: '2' 'auth' 'joe' '"+secret+"' ", "WRONGPASS "+secret
		var clients []*redis.Client
		for _, p := range ps {
			c := redis.NewClient(&redis.Options{Addr: p.name, Username: "joe", Password: secret, Dialer: p.dial})
			defer c.Close()
			clients = append(clients, c)
		}
		var log bytes.Buffer
		var seen, events []any
		note := func(e Event) { events = append(events, e) } // read behind synctest.Wait
		p, err := New(clients, WithTTL(time.Second), WithRestartGuard(0),
			WithLogger(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			WithObserver(Observer{Acquired: note, Denied: note, Renewed: note, Degraded: note, Lost: note, NodeLost: note, UndoPending: note}))
		require.NoError(t, err)
		p.owned = clients // as Open has them
		l, err := p.TryLock(bg, "a")
		require.NoError(t, err)
		_, held := p.TryLock(bg, "a")
		time.Sleep(2 * time.Second)
		seen = append(seen, p, l, p.Stats(), p.Stats().Nodes[4], held)
		for _, peer := range ps {
			peer.freeze()
		}
		time.Sleep(2 * time.Second)
		seen = append(seen, l, l.Err(), context.Cause(l.Context()))
		_, failed := p.TryLock(bg, "b")
		seen = append(seen, failed)
		for _, n := range failed.(*QuorumError).Nodes {
			seen = append(seen, n, n.Err)
		}
		for _, peer := range ps {
			peer.thaw()
		}
		p.owned = nil
		_ = p.Close()

		// 2. Printed in whatever way, none of what the caller is given shows it.
		synctest.Wait()
		require.NotEmpty(t, events)
		for _, each := range append(seen, events...) {
			encoded, _ := json.Marshal(each)
			for _, text := range []string{fmt.Sprintf("%v", each), fmt.Sprintf("%+v", each), fmt.Sprintf("%#v", each), fmt.Sprintf("%s", each), string(encoded)} {
				require.NotContains(t, text, secret, "%T", each)
			}
		}
		require.NotContains(t, log.String(), secret)
		require.Contains(t, log.String(), "WRONGPASS ***")
	})
	require.NotContains(t, string(client.text), secret)
}

package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxSubscribe = 256 // channels in one SUBSCRIBE, keys in one peek

	// listenerIdle is how long a connection without a subscription is kept.
	listenerIdle = 10 * time.Second
	// listenerPing is how often a silent connection is asked whether it is alive.
	listenerPing = 2 * time.Second
	// listenerPause is before a broken connection is replaced, at most: the node's own finds out first, and whoever
	// waits does not ask at the same moment as all others.
	listenerPause = 100 * time.Millisecond
	// refusedPause is before a server that refused pub/sub is asked again.
	refusedPause = 30 * time.Second
)

// listener hears of a node's releases. It keeps one subscription connection, however many keys are waited for, and none
// while nobody waits. Its two goroutines start with the first subscription and end with the pool.
//
//	subscribe -> wake -> SUBSCRIBE -> confirmed: heard  (what happened before has to be asked for)
//	                     message   ->            told
//	connection broken -> deaf, a pause with jitter -> SUBSCRIBE everything again -> heard
type listener struct {
	n     *node
	heard func(node int, keys []string)    // set before the first subscription, then read-only
	told  func(node int, key, text string) // the same
	run   func(f func())                   // starts a goroutine that Close waits for
	ctx   context.Context                  // ends with the pool
	wake  chan struct{}                    // there is something to subscribe

	mu      sync.Mutex // guards the fields below
	begun   bool
	wanted  map[string]bool // by key; true once the server has confirmed it on the present connection
	todo    []string        // keys whose subscription is to be sent, or taken back
	refused bool            // told that the server refuses pub/sub
	unsaid  bool            // told that it refuses PUBLISH

	dialing chan dialedWire // the one dial under way; of listen alone
}

type dialedWire struct {
	conn net.Conn
	err  error
}

func newListener(n *node) *listener {
	return &listener{n: n, wake: make(chan struct{}, 1), wanted: map[string]bool{}}
}

// subscribe asks for the releases of keys from soon on, or no longer. It does not block.
func (l *listener) subscribe(keys []string, on bool) {
	l.mu.Lock()
	for _, k := range keys {
		if _, has := l.wanted[k]; has == on {
			continue
		}
		if on {
			l.wanted[k] = false
		} else {
			delete(l.wanted, k)
		}
		l.todo = append(l.todo, k)
	}
	begin := !l.begun && len(l.wanted) > 0
	l.begun = l.begun || begin
	l.mu.Unlock()
	if begin {
		l.run(l.listen)
	}
	l.nudge()
}

func (l *listener) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// hears says whether every release of a key on this node reaches us.
func (l *listener) hears(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted[key]
}

// subscribed counts the keys whose releases reach us.
func (l *listener) subscribed() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, confirmed := range l.wanted {
		if confirmed {
			n++
		}
	}
	return n
}

// asked says whether a subscriber of the key on this node may be ourselves.
func (l *listener) asked(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has := l.wanted[key]
	return has
}

// listen is the goroutine that connects, and subscribes.
func (l *listener) listen() {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		idle := len(l.wanted) == 0
		l.mu.Unlock()
		if idle {
			select {
			case <-l.wake:
			case <-l.ctx.Done():
			}
			continue
		}
		err := l.session()
		l.mu.Lock()
		for k := range l.wanted {
			l.wanted[k] = false
		}
		l.mu.Unlock()
		if err != nil && l.ctx.Err() == nil {
			l.pause(err)
		}
	}
	if l.dialing == nil {
		return
	}
	timer := time.NewTimer(l.n.timeout)
	defer timer.Stop()
	select {
	case d := <-l.dialing:
		d.close()
	case <-timer.C: // a dialer that ignores its ctx: its connection is closed when it comes
		go func() { (<-l.dialing).close() }()
	}
}

func (d dialedWire) close() {
	if d.conn != nil {
		_ = d.conn.Close()
	}
}

// pause is before the next try.
func (l *listener) pause(err error) {
	most := listenerPause
	if text := err.Error(); isServerError(err) && (strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR unknown command")) {
		most = refusedPause
		l.mu.Lock()
		first := !l.refused && !l.unsaid
		l.refused = true
		l.mu.Unlock()
		if first {
			err = withoutSecrets(err, l.n.opts.Username, l.n.opts.Password)
			l.n.events.emit(evWarning, Event{Node: l.n.name, Err: usageError(
				"node %s: it does not let us hear of releases, so whoever waits asks again and again instead: %w; "+
					"allow its user the channels, see docs/operations.md", l.n.name, err)})
		}
	}
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

// unheard warns, once, that the node does not let us tell others of our releases.
func (l *listener) unheard() {
	l.mu.Lock()
	first := !l.refused && !l.unsaid // most likely for one reason
	l.unsaid = true
	l.mu.Unlock()
	if first {
		l.n.events.emit(evWarning, Event{Node: l.n.name, Err: usageError(
			"node %s: it does not let us tell others of releases (PUBLISH), so whoever waits asks again and again instead; "+
				"allow its user the channels, see docs/operations.md", l.n.name)})
	}
}

// session is one connection, from its dial to its end. nil means that nobody waits any more.
func (l *listener) session() error {
	// 1. Connect and subscribe.
	nc, err := l.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	client := redis.NewClient(handOver(&wire{Conn: nc}, l.n.opts))
	defer client.Close()
	ps := client.Subscribe(l.ctx)
	defer ps.Close()
	l.mu.Lock()
	l.todo = nil
	var all []string
	for k := range l.wanted {
		all = append(all, k)
	}
	l.mu.Unlock()
	if err := l.send(ps, all); err != nil {
		return err
	}

	// 2. One goroutine reads; it ends with the connection, before this call does.
	broken := make(chan error, 1)
	alive := make(chan struct{}, 1)
	l.run(func() { broken <- l.receive(ps, alive) })
	end := func(err error) error {
		_ = nc.Close()
		_ = ps.Close()
		<-broken
		return err
	}

	// 3. This one writes.
	ping := time.NewTimer(listenerPing)
	defer ping.Stop()
	asked, idle := false, time.Duration(0)
	for {
		select {
		case err := <-broken:
			return err
		case <-l.ctx.Done():
			return end(nil)
		case <-alive:
			asked = false
			continue
		case <-l.wake:
			l.mu.Lock()
			todo := l.todo
			l.todo = nil
			l.mu.Unlock()
			if err := l.send(ps, todo); err != nil {
				return end(err)
			}
			continue
		case <-ping.C:
		}
		if asked {
			return end(errors.New("no answer to a ping"))
		}
		l.mu.Lock()
		waits := len(l.wanted) > 0
		l.mu.Unlock()
		ping.Reset(listenerPing)
		switch {
		case waits:
			idle, asked = 0, true
			ping.Reset(max(l.n.timeout, listenerPing))
			if err := ps.Ping(l.ctx); err != nil {
				return end(err)
			}
		case idle >= listenerIdle:
			return end(nil)
		default:
			idle += listenerPing
		}
	}
}

// send subscribes to what is wanted of the keys, and takes the rest back.
func (l *listener) send(ps *redis.PubSub, keys []string) error {
	var on, off []string
	l.mu.Lock()
	for _, k := range keys {
		if confirmed, has := l.wanted[k]; !has {
			off = append(off, l.n.channel+k)
		} else if !confirmed {
			on = append(on, l.n.channel+k)
		}
	}
	l.mu.Unlock()
	for len(off) > 0 {
		k := min(len(off), maxSubscribe)
		if err := ps.Unsubscribe(l.ctx, off[:k]...); err != nil {
			return err
		}
		off = off[k:]
	}
	for len(on) > 0 {
		k := min(len(on), maxSubscribe)
		if err := ps.Subscribe(l.ctx, on[:k]...); err != nil {
			return err
		}
		on = on[k:]
	}
	return nil
}

// receive reads until the connection ends. Confirmations that stand together are passed on together.
func (l *listener) receive(ps *redis.PubSub, alive chan<- struct{}) (err error) {
	defer recoverReply(&err)
	var fresh []string
	for {
		msg, err := ps.ReceiveTimeout(l.ctx, 0)
		if err != nil {
			return err
		}
		select {
		case alive <- struct{}{}:
		default:
		}
		switch m := msg.(type) {
		case *redis.Message:
			if key, ours := strings.CutPrefix(m.Channel, l.n.channel); ours {
				l.told(l.n.index, key, m.Payload)
			}
		case *redis.Subscription:
			key := strings.TrimPrefix(m.Channel, l.n.channel)
			more := false
			l.mu.Lock()
			was, has := l.wanted[key]
			if has && m.Kind == "unsubscribe" { // it was taken back, and is wanted again
				l.wanted[key] = false
				l.todo = append(l.todo, key)
				l.nudge()
			}
			if has && !was && m.Kind == "subscribe" {
				l.wanted[key], l.refused = true, false
				fresh = append(fresh, key)
				more = m.Count < len(l.wanted)
			}
			l.mu.Unlock()
			if len(fresh) > 0 && (!more || len(fresh) == maxSubscribe) {
				l.heard(l.n.index, fresh)
				fresh = nil
			}
		}
	}
}

// connect dials for a node timeout at most. A dialer is free to ignore its ctx: then the next try waits for it.
func (l *listener) connect() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.n.timeout)
	defer cancel()
	if l.dialing == nil {
		done := make(chan dialedWire, 1)
		l.dialing = done
		go func() { // ends when the dialer does
			var d dialedWire
			defer func() { done <- d }()
			defer recoverReply(&d.err)
			d.conn, d.err = l.n.dial(ctx, l.n.opts.Network, l.n.opts.Addr)
		}()
	}
	select {
	case d := <-l.dialing:
		l.dialing = nil
		return d.conn, d.err
	case <-ctx.Done():
		return nil, reasonTimeout(l.n.timeout)
	}
}

package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a node is reached: dialled, checked, given up, probed, and asked for its clock while it is idle.

// idleReading is at most how old the newest reading of a node's clock may grow while nothing else is sent.
const (
	idleReading    = time.Second
	minIdleReading = 2 * time.Millisecond
)

// undoRetry is the pause before a release that a server refused, or did not answer, is tried again.
const undoRetry = 200 * time.Millisecond

// dialing is one attempt to connect. It may outlive our patience, for a dialer is free to ignore its ctx; then the next
// attempt waits for it instead of piling up.
type dialing struct {
	done   chan dialed
	cancel context.CancelFunc
}

type dialed struct {
	conn  *conn
	found checked
	err   error
}

// connect is the probe of a node that is down, and the first connection of one that is not.
func (n *node) connect() {
	n.reconnect = false
	start := n.clock.mono()
	if err := n.open(); err != nil {
		n.markDown(reasonOf(err), start+n.timeout-n.clock.mono())
	}
}

// open dials and checks, for at most the node timeout, or until the closing pool gives up. On success the node is up.
func (n *node) open() error {
	stale := n.dialing != nil
	patience := n.timeout
	n.mu.Lock()
	if n.closing {
		patience = min(patience, n.giveUp-n.clock.mono())
	}
	n.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if n.dialing == nil {
			n.dialing = n.dialInBackground()
		}
		select {
		case d := <-n.dialing.done:
			n.dialing = nil
			if d.err != nil && stale { // the outcome of an earlier attempt says nothing about now
				stale = false
				continue
			}
			if d.err != nil {
				if isTimeout(d.err) {
					return reasonTimeout(n.timeout)
				}
				return d.err
			}
			n.adopt(d)
			return nil
		case <-timer.C:
			n.dialing.cancel()
			return reasonTimeout(n.timeout)
		}
	}
}

// dialInBackground runs one goroutine, which ends when the dialer does; finish cancels it and waits.
func (n *node) dialInBackground() *dialing {
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	d := &dialing{done: make(chan dialed, 1), cancel: cancel}
	go func() {
		defer cancel()
		var r dialed
		r.conn, r.found, r.err = n.dialAndCheck(ctx)
		n.mu.Lock()
		gone := n.gone
		if !gone {
			d.done <- r
		}
		n.mu.Unlock()
		if gone && r.conn != nil {
			r.conn.close()
		}
	}()
	return d
}

func (n *node) dialAndCheck(ctx context.Context) (c *conn, found checked, err error) {
	defer recoverReply(&err)
	nc, err := n.dial(ctx, n.opts.Network, n.opts.Addr)
	if err != nil {
		return nil, checked{}, err
	}
	// go-redis heeds a ctx's deadline, but not its cancellation.
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	var looks func() []redis.Cmder
	if n.keeper.guard > 0 {
		looks = n.lookCommands
	}
	c, found, err = newConn(ctx, nc, n.opts, n.pace, looks)
	switch {
	case err == nil:
		return c, found, nil
	case ctx.Err() != nil:
		return nil, checked{}, ctx.Err() // the true reason; a closed connection is but its effect
	}
	return nil, checked{}, withoutSecrets(err, n.opts.Username, n.opts.Password)
}

func (n *node) adopt(d dialed) {
	n.conn = d.conn
	n.live.Store(d.conn)
	n.read(d.found.clock.micros, d.found.clock.asked.mono)
	n.mu.Lock()
	wasDown := n.down != nil
	n.down = nil
	n.mu.Unlock()
	n.acquaint(d.found)
	if wasDown {
		n.events.emit(evNodeBack, Event{Node: n.name})
	}
}

func (n *node) disconnect() {
	if n.conn != nil {
		n.live.Store(nil)
		n.conn.close()
		n.conn = nil
	}
}

// markDown takes the node out of every round until a probe reaches it, and answers for what is queued: requests never
// left, releases go to the undo list.
func (n *node) markDown(why error, probeIn time.Duration) {
	n.probeAt = n.clock.mono() + probeIn
	n.mu.Lock()
	wasUp := n.down == nil && !n.closing
	n.down = why
	queued := slices.Clone(n.queue[n.head:])
	clear(n.queue)
	n.queue, n.head = n.queue[:0], 0
	n.mu.Unlock()
	n.keeper.report(n.index, func(m *memory) { m.phase = away })
	n.fail(queued, false, why)
	if wasUp {
		n.events.emit(evNodeLost, Event{Node: n.name, Err: why})
	}
}

// tickDue says whether the clock has to be read or something to be undone.
func (n *node) tickDue() bool {
	now := n.clock.mono()
	n.mu.Lock()
	due, ok := n.undos.next()
	n.mu.Unlock()
	return n.stale || ok && max(due, n.undoFrom) <= now || now-max(n.server.asked, n.ticked) >= n.idle
}

// tick reads the server's clock and, behind it, releases what is due on the undo list. A release that ran after its
// entry's second settles the entry for good.
func (n *node) tick() {
	paced := n.pace()
	asked := paced.mono
	n.stale, n.ticked = false, asked // a server that refuses TIME is not asked more often for it
	n.mu.Lock()
	limit := maxUndos
	if n.closing {
		limit = maxBatch
	}
	switch {
	case asked < n.undoFrom:
		limit = 0
	case n.undoFrom > 0:
		limit = 1 // one finds out; all of them, as often as that, would be a storm
	}
	due := n.undos.take(asked, limit)
	n.mu.Unlock()
	n.cmds = append(n.cmds[:0], n.conn.time)
	for _, u := range due {
		n.cmds = append(n.cmds, newCommand(opRelease, u.keys, u.token, n.channel))
	}
	err, _ := n.exchange(asked)

	second := int64(0)
	if micros, ok := n.conn.micros(); ok {
		second = micros / 1_000_000
		n.testify(sample{micros: micros, asked: paced, heard: n.pace()})
		n.read(micros, asked)
	}
	if len(due) > 0 {
		n.undoFrom = 0
	}
	n.mu.Lock()
	for i, u := range due {
		if e := n.cmds[i+1].Err(); e != nil && isServerError(e) && !isNoScript(e) {
			n.undoFrom = asked + undoRetry
		}
		switch e := n.cmds[i+1].Err(); {
		case e == nil && second > u.latest:
			n.undos.done(u)
			n.undone.Add(1)
		case e == nil && second > 0:
			n.undos.again(u, asked+max(n.server.untilPast(u.latest, asked), time.Millisecond))
		default: // refused or unanswered; never at once, for a server that chokes on it would be asked without end
			n.undos.again(u, asked+undoRetry)
		}
	}
	n.mu.Unlock()

	if n.survives(err) && slices.ContainsFunc(n.cmds, func(c redis.Cmder) bool { return isNoScript(c.Err()) }) {
		n.forget() // a new connection loads the scripts
	}
}

// survives says whether the connection is still good after an exchange of our own, and draws the consequences.
func (n *node) survives(err error) bool {
	switch {
	case err == nil:
	case isTimeout(err):
		n.timeouts.Add(1)
		n.disconnect()
		n.markDown(reasonTimeout(n.timeout), 0)
	default:
		n.forget()
	}
	return err == nil
}

// forget closes a connection for a new one to take its place at once.
func (n *node) forget() {
	n.disconnect()
	n.reconnects.Add(1)
	n.reconnect = true
}

// settleRelease looks after a release that did not end the matter: the server refused it, or a request of the same
// token is in doubt and may still be applied behind it.
func (n *node) settleRelease(r *request, v vote) {
	n.mu.Lock()
	latest, doubt := n.undos.uncertain[r.token]
	if v.kind != voteGrant || doubt && n.server.micros/1_000_000 <= latest {
		n.undoLaterLocked(r)
	}
	n.mu.Unlock()
}

// undoLaterLocked puts a release on the undo list. n.mu must be held.
func (n *node) undoLaterLocked(r *request) {
	now := n.clock.mono()
	latest := n.undos.uncertain[r.token]
	first := n.undos.len() == 0
	due := now
	if latest > 0 {
		due += min(n.server.untilPast(latest, now), forever)
	}
	dropped := n.undos.add(&undo{
		keys: r.keys, token: r.token, latest: latest,
		due:    min(due, now+undoRetry), // once at once: most often nothing of it is left
		expiry: due + min(r.ttl, forever) + time.Second,
	})
	n.undoDropped.Add(uint64(dropped))
	if first {
		n.events.emit(evUndoPending, Event{Node: n.name, Pending: n.undos.len(), Err: n.down})
	}
}

// undoPending counts the tokens that this node may still hold although nobody wants them.
func (n *node) undoPending() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.undos.len()
}

// finish ends what run leaves behind. A dialer that ignores its ctx is waited for until the pool gives up; its
// connection, should it still come, is closed by the goroutine that made it.
func (n *node) finish() {
	n.disconnect()
	n.markDown(reasonClosed, forever)
	var late dialed
	if n.dialing != nil {
		n.dialing.cancel()
		n.mu.Lock()
		left := n.giveUp - n.clock.mono()
		n.mu.Unlock()
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case late = <-n.dialing.done:
		case <-timer.C:
		}
	}
	n.mu.Lock()
	n.gone = true
	n.mu.Unlock()
	if n.dialing != nil && late.conn == nil {
		select {
		case late = <-n.dialing.done:
		default:
		}
	}
	if late.conn != nil {
		late.conn.close()
	}
}

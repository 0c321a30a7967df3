package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// How a node's requests are sent, and what becomes of those that have no answer.

// serve sends a batch in one pipeline and reports every vote.
func (n *node) serve(batch []*request) {
	// 1. Send.
	asked := n.pace()
	for _, r := range batch {
		if r.op.dated() && r.latest == 0 {
			r.latest = n.server.latestSecond(r.start.mono, r.timeout)
		}
	}
	n.pack(batch)
	err, wrote := n.exchange(asked.mono)

	// 2. Read the answers. A grant carries the server's time: a step of its clock shows before its votes count.
	n.votes = n.votes[:0]
	var micros int64
	unsteady, noScript := false, false
	for i, r := range batch {
		v, ok := n.answer(i, r)
		if !ok {
			v.kind = voteUnanswered
			noScript = noScript || isNoScript(n.cmds[n.places[i].cmd].Err())
		}
		micros = max(micros, v.micros)
		unsteady = unsteady || v.kind == voteUnsteady || v.kind == voteUnsteadyOurs
		n.stale = n.stale || v.kind == voteLate
		n.votes = append(n.votes, v)
	}
	trusted := micros == 0 || n.testify(sample{micros: micros, asked: asked, heard: n.pace()})
	if unsteady {
		n.doubtMarker()
	}

	// 3. Report what was answered; keep what was not, in its order.
	unanswered := batch[:0]
	for i, r := range batch {
		v := n.votes[i]
		switch {
		case v.kind == voteUnanswered:
			unanswered = append(unanswered, r)
			continue
		case r.op == opRelease:
			n.settleRelease(r, v)
		case v.kind == voteUnsteady, v.kind == voteUnsteadyOurs:
			v.reason = cmp.Or(v.reason, n.keeper.voteless(n.index), error(reasonForgot(n.keeper.watch)))
		case v.kind == voteNone:
			v.reason = cmp.Or(n.unfitness(), v.reason)
		case v.kind == voteGrant && !trusted:
			v = noAnswer(reasonClock)
		}
		r.asker.answered(r, v)
	}
	// Noted only now: it must not vouch for releases that ran before it.
	if micros > 0 {
		n.read(micros, asked.mono)
	}
	n.letGo()
	n.served.Add(uint64(len(batch) - len(unanswered)))

	// 4. What has no answer: the connection was cut, is silent, or the server forgot our scripts.
	switch {
	case err == nil && !noScript:
	case err == nil:
		n.reload(unanswered)
	case isTimeout(err):
		n.timeouts.Add(1)
		n.disconnect()
		n.fail(unanswered, wrote, reasonTimeout(n.timeout))
		n.markDown(reasonTimeout(n.timeout), 0)
	default:
		n.disconnect()
		n.resend(unanswered, wrote, err)
	}
}

// unfitness is why the server must not vote at all; nil where it may.
func (n *node) unfitness() error {
	k := n.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.nodes[n.index]; m.phase == unfit {
		return m.reason
	}
	return nil
}

// exchange runs n.cmds and says whether a byte of them may have left.
func (n *node) exchange(asked time.Duration) (err error, wrote bool) {
	before := n.conn.wire.written.Load()
	err = n.conn.exchange(n.cmds)
	n.pipelines.Add(1)
	if err == nil {
		n.roundTrip.Store(int64(n.clock.mono() - asked))
	}
	return err, n.conn.wire.written.Load() > before
}

// reload gives the server its scripts back and sends what it refused for the lack of them.
func (n *node) reload(refused []*request) {
	for _, r := range refused {
		r.resent = true
	}
	refused = slices.Clone(refused)
	n.cmds = n.cmds[:0]
	lost := loaded
	if n.keeper.guard > 0 {
		lost = append(loaded[:len(loaded):len(loaded)], n.witness) // its process is no new one
	}
	for _, s := range lost {
		n.cmds = append(n.cmds, redis.NewStringCmd(context.Background(), "script", "load", s.source))
	}
	if err, _ := n.exchange(n.clock.mono()); err != nil {
		n.disconnect()
		n.resend(refused, false, err)
		return
	}
	if refused = n.wanted(refused); len(refused) > 0 {
		n.serve(refused)
	}
}

// wanted drops what nobody wants any more from requests that are to be sent again.
func (n *node) wanted(rs []*request) []*request {
	kept := rs[:0]
	for _, r := range rs {
		if r.asker.sending(r) {
			kept = append(kept, r)
		} else {
			r.asker.answered(r, noAnswer(reasonNeverSent))
		}
	}
	return kept
}

// resend makes a new connection for what a cut one left unanswered and sends it once more, ahead of the queue. The
// first copy may still be applied, so whatever comes of it, its token is in doubt until its latest second.
func (n *node) resend(rs []*request, wrote bool, cause error) {
	rs = slices.Clone(rs)
	now := n.clock.mono()
	kept := rs[:0]
	for _, r := range rs {
		if r.resent || now-r.start.mono >= r.timeout {
			n.fail([]*request{r}, wrote, reasonOf(cause))
			continue
		}
		n.inDoubt(r, wrote)
		r.resent = true
		kept = append(kept, r)
	}
	n.reconnects.Add(1)
	why := cause
	for _, pause := range reconnectPauses {
		time.Sleep(pause)
		if why = n.open(); why == nil {
			if kept = n.wanted(kept); len(kept) > 0 {
				n.serve(kept)
			}
			return
		}
		if n.clock.mono()-now >= n.timeout {
			break
		}
	}
	n.fail(kept, wrote, reasonOf(why))
	n.markDown(reasonOf(why), n.timeout)
}

// reconnectPauses are the waits before each try to replace a cut connection.
var reconnectPauses = []time.Duration{0, 2 * time.Millisecond, 8 * time.Millisecond, 20 * time.Millisecond}

// fail reports requests whose fate is unknown. What may have left is in doubt; a release goes to the undo list.
func (n *node) fail(rs []*request, wrote bool, why error) {
	for _, r := range rs {
		n.inDoubt(r, wrote)
		if r.op == opRelease {
			n.mu.Lock()
			n.undoLaterLocked(r)
			n.mu.Unlock()
		}
		r.asker.answered(r, noAnswer(why))
	}
}

func (n *node) inDoubt(r *request, wrote bool) {
	if wrote && r.op.mayCreate() {
		n.mu.Lock()
		n.undos.doubt(r.token, r.latest)
		n.mu.Unlock()
	}
}

// read notes the server's clock, asked for at the given instant.
func (n *node) read(micros int64, asked time.Duration) {
	n.mu.Lock()
	n.server = serverClock{micros: micros, asked: asked}
	n.undos.settle(micros / 1_000_000)
	n.mu.Unlock()
	n.zero.Store(micros - asked.Microseconds())
}

package redlock

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

// voter is an asker that remembers its votes in their order.
type voter struct {
	mu    sync.Mutex
	votes []vote
	of    []string // the tokens voted on
	want  bool
}

func (v *voter) sending(*request) bool { return v.want }

func (v *voter) answered(r *request, got vote) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.votes = append(v.votes, got)
	v.of = append(v.of, r.token)
}

// all are the votes so far.
func (v *voter) all() []vote {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]vote(nil), v.votes...)
}

// startNode is one node of a pool that asks nothing by itself.
func startNode(t *testing.T, p *peer) *node {
	return testPool(t, []*peer{p}).quorum.nodes[0]
}

func (n *node) ask(v *voter, o op, key, token string) {
	n.submit(&request{asker: v, call: &call{op: o, keys: []string{key}, stripes: stripesOf([]string{key}), fence: fenceText(1), proposed: 1, token: token, ttl: 30 * time.Second,
		start: n.clock.now(), timeout: n.timeout}})
	n.nudge()
}

func TestWhatWaitsGoesIntoOnePipeline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		p.delay = 10 * time.Millisecond
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "a0", "t0")
		time.Sleep(25 * time.Millisecond) // the handshake is over, the first is on its way
		before := n.pipelines.Load()
		for i := range 1000 {
			n.ask(v, opAcquire, fmt.Sprint("k", i), "t")
		}
		time.Sleep(time.Second / 2)
		require.Len(t, v.all(), 1001)
		require.LessOrEqual(t, n.pipelines.Load()-before, uint64(5), "256 at a time")
	})
}

func TestAFullQueueAnswersAtOnceAndKeepsReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		p.hole = true
		n := startNode(t, p)
		v := &voter{want: true}
		for range maxQueue + 10 {
			n.ask(v, opAcquire, "k", "t")
		}
		synctest.Wait()
		require.Len(t, v.all(), 10)
		require.Equal(t, reasonFull, v.all()[0].reason)
		n.ask(v, opRelease, "k", "t")
		require.Equal(t, 1, n.undoPending())
		p.setHole(false)
		p.cut()
	})
}

func TestWhatNobodyWantsIsDroppedUnsent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{}
		for range 600 {
			n.ask(v, opAcquire, "k", "t")
		}
		synctest.Wait()
		require.Len(t, v.all(), 600)
		require.Equal(t, voteNever, v.all()[0].kind)
		require.Zero(t, p.count("acquire"))
	})
}

func TestADownNodeGetsProbesAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		p.hole = true
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t")
		time.Sleep(300 * time.Millisecond)
		require.Len(t, v.all(), 1)
		for range 1000 {
			n.ask(v, opAcquire, "k", "t")
			n.ask(v, opRenew, "k", "t")
		}
		require.Len(t, v.all(), 2001, "at once")
		require.ErrorContains(t, v.all()[2000].reason, "no answer within 250ms")
		n.ask(v, opRelease, "k", "t")
		require.Equal(t, 1, n.undoPending())
		time.Sleep(10 * time.Second)
		p.setHole(false)
		time.Sleep(time.Second)
		require.Zero(t, n.undoPending())
		require.Equal(t, 1, p.count("release"))
		n.ask(v, opAcquire, "k", "t")
		synctest.Wait()
		require.Equal(t, voteGrant, v.all()[len(v.all())-1].kind)
	})
}

func TestACutConnectionRefusesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t0")
		synctest.Wait()
		for i := range 20 {
			if i%2 == 0 {
				p.cut()
			} else {
				p.do(func() { p.Drop = "acquire" })
			}
			n.ask(v, opAcquire, fmt.Sprint("k", i), "t")
			synctest.Wait()
			time.Sleep(30 * time.Millisecond)
		}
		require.Len(t, v.all(), 21)
		for _, got := range v.all() {
			require.Equal(t, voteGrant, got.kind, got.reason)
		}
		require.Empty(t, n.stats().Down)
	})
}

func TestAServerThatForgotTheScriptsGetsThemBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t")
		synctest.Wait()
		p.do(func() { clear(p.Scripts) })
		n.ask(v, opRelease, "k", "t")
		n.ask(v, opAcquire, "k", "t2")
		synctest.Wait()
		require.Len(t, v.all(), 3)
		v.mu.Lock()
		require.Equal(t, []string{"t", "t", "t2"}, v.of)
		v.mu.Unlock()
		for _, got := range v.all() {
			require.Equal(t, voteGrant, got.kind, got.reason)
		}
		require.Zero(t, n.reconnects.Load())
	})
}

func TestAnUndoOfADoubtfulRequestOutlivesItsSecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t0")
		synctest.Wait()
		// The request is cut off unread; its copy is granted, released, and only then does the first one land.
		p.do(func() { p.Drop = "acquire" })
		n.ask(v, opAcquire, "a", "t")
		time.Sleep(50 * time.Millisecond)
		n.ask(v, opRelease, "a", "t")
		synctest.Wait()
		require.Equal(t, 1, n.undoPending(), "the first copy may still come")
		time.Sleep(time.Second)
		p.do(func() { p.Keys["a"] = model.Value{S: "t", Expires: p.Now().Add(30 * time.Second)} })
		time.Sleep(2200 * time.Millisecond) // node timeout + 3 s since it was sent
		require.Zero(t, n.undoPending())
		require.Empty(t, p.owner("a"))
	})
}

func TestALateAnswerMakesUsReadTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t0")
		synctest.Wait()
		p.do(func() { p.Clock = time.Hour })
		n.ask(v, opAcquire, "k1", "t1")
		synctest.Wait()
		n.ask(v, opAcquire, "k2", "t2")
		synctest.Wait()
		got := v.all()
		require.Equal(t, voteLate, got[1].kind)
		require.Equal(t, voteGrant, got[2].kind, "no second one is refused")
	})
}

func TestAServerThatRefusesTIMEIsAskedNoMoreOften(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t")
		synctest.Wait()
		p.do(func() { p.Errs["time"] = "NOPERM this user has no permissions to run the 'time' command" })
		before := n.pipelines.Load()
		time.Sleep(20 * time.Second)
		require.LessOrEqual(t, n.pipelines.Load()-before, uint64(21))
	})
}

func TestAGrantBringsTheServersTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, 0)
		n := startNode(t, p)
		v := &voter{want: true}
		n.ask(v, opAcquire, "k", "t0")
		synctest.Wait()
		asked := n.server.asked
		time.Sleep(100 * time.Millisecond)
		n.ask(v, opAcquire, "k1", "t1")
		synctest.Wait()
		require.Equal(t, asked+100*time.Millisecond, n.server.asked)
	})
}

func TestTheUndoListIsBounded(t *testing.T) {
	var l undoList
	dropped := 0
	for i := range maxUndo + 100 {
		dropped += l.add(&undo{token: fmt.Sprint(i), due: time.Duration(i)})
		l.doubt(fmt.Sprint(i), int64(i))
	}
	require.Equal(t, 100, dropped)
	require.Equal(t, maxUndo, l.len())
	require.Len(t, l.uncertain, maxUndo)
	require.Len(t, l.order, maxUndo)
	l.settle(maxUndo + 50)
	require.Len(t, l.uncertain, 50)
}

func TestUndoEntriesOfOneTokenMerge(t *testing.T) {
	var l undoList
	l.doubt("t", 7)
	require.Zero(t, l.add(&undo{token: "t", expiry: 10}))
	require.Zero(t, l.add(&undo{token: "t", latest: 9, expiry: 5}))
	require.Equal(t, 1, l.len())
	u := l.take(0, 64)
	require.Len(t, u, 1)
	require.EqualValues(t, 9, u[0].latest)
	require.EqualValues(t, 10, u[0].expiry)
	l.again(u[0], 3)
	require.Empty(t, l.take(2, 64), "not due yet")
	require.Empty(t, l.take(11, 64), "gone by itself")
	require.Zero(t, l.len())
}

func TestReplyShape(t *testing.T) {
	for reply, want := range map[string]bool{
		"+OK\r\n:1\r\n-ERR x\r\n$3\r\nabc\r\n*2\r\n$1\r\na\r\n*-1\r\n$-1\r\n": true,
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n~0\r\n#t\r\n,1.5\r\n_\r\n(12\r\n":      true,
		"|1\r\n+k\r\n+v\r\n:1\r\n=5\r\ntxt:a\r\n":                             true,
		"$1048577\r\n": false,
		"$12a\r\n":     false,
		"*4097\r\n":    false,
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n": false,
	} {
		var s replyShape
		require.Equal(t, want, s.accept([]byte(reply)), "%q", reply)
		if want {
			require.Zero(t, s.depth, "%q", reply)
			require.Zero(t, s.kind, "%q", reply)
		}
	}
}

// However a stream is cut into pieces, the verdict on it is the same.
func FuzzReplyShapeInPieces(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n:1\r\n"), 3)
	f.Add([]byte("%1\r\n+a\r\n|1\r\n+x\r\n:1\r\n$0\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		var whole, pieces replyShape
		want := whole.accept(stream)
		got := true
		for rest := stream; len(rest) > 0 && got; {
			k := min(len(rest), max(1, size))
			got = pieces.accept(rest[:k])
			rest = rest[k:]
		}
		require.Equal(t, want, got)
		require.LessOrEqual(t, whole.depth, maxReplyDepth)
	})
}

// No reply of any kind makes parse panic or grant what was not granted.
func FuzzParse(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(1), true)
	f.Add(uint8(1), int64(-1), int64(-9223372036854775808), false)
	f.Fuzz(func(t *testing.T, o uint8, a, b int64, list bool) {
		r := &request{call: &call{op: op(o) % opCount, keys: []string{"k"}, proposed: 7}}
		for _, val := range []any{a, []any{a, b}, []any{a, b, a}, []any{a, "x"}, []any{}, []any{nil}, nil, "x"} {
			for _, v := range []vote{parse(r, val, nil), parseTogether(r, val, a)} {
				if v.kind == voteGrant && r.op == opAcquire {
					require.Positive(t, v.fence)
					require.Positive(t, v.micros)
					require.LessOrEqual(t, v.micros, maxMicros)
				}
				if _, isList := val.([]any); isList && v.kind == voteGrant {
					require.Equal(t, opAcquire, r.op)
				}
			}
		}
		var val any = a
		if list {
			val = []any{a, b}
		}
		require.Equal(t, voteNone, parse(r, val, errors.New("x")).kind)
	})
}

// A patient caller's request is not refused for the sake of an impatient one's that left with it.
func TestRequestsAreAskedTogetherWhereTheyEndTogether(t *testing.T) {
	n := &node{state: "state"}
	ask := func(o op, latest int64, keys ...string) *request {
		return &request{call: &call{op: o, keys: keys}, latest: latest}
	}
	for name, c := range map[string]struct {
		batch []*request
		want  int // how many of them go into the first call
	}{
		"one second":            {[]*request{ask(opAcquire, 100, "a"), ask(opRenew, 100, "b")}, 2},
		"a second later":        {[]*request{ask(opAcquire, 100, "a"), ask(opAcquire, 101, "b")}, 2},
		"a second earlier":      {[]*request{ask(opAcquire, 101, "a"), ask(opAcquire, 100, "b")}, 1},
		"two seconds later":     {[]*request{ask(opAcquire, 100, "a"), ask(opAcquire, 102, "b")}, 1},
		"two seconds earlier":   {[]*request{ask(opRenew, 102, "a"), ask(opAcquire, 100, "b")}, 1},
		"two in two steps":      {[]*request{ask(opAcquire, 100, "a"), ask(opAcquire, 101, "b"), ask(opAcquire, 102, "c")}, 2},
		"releases have no end":  {[]*request{ask(opRelease, 0, "a"), ask(opAcquire, 100, "b"), ask(opRelease, 0, "c")}, 3},
		"behind a release":      {[]*request{ask(opRelease, 0, "a"), ask(opAcquire, 100, "b"), ask(opAcquire, 102, "c")}, 2},
		"several keys for each": {[]*request{ask(opAcquire, 100, "a"), ask(opAcquire, 100, "b", "c")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			latest := int64(0)
			k := 0
			for k < len(c.batch) && n.joins(&latest, c.batch[k]) {
				k++
			}
			require.Equal(t, c.want, k)
		})
	}
}

// go-redis stops reading within the reply of EXEC where it knows the kind of error, and would take the rest of it for the
// answer to what comes next.
func TestAnErrorWithinAReplyIsTheLastThatAConnectionIsUsedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, text := range []string{"OOM command not allowed when used memory > 'maxmemory'.", "NOPERM this user has no permissions", "READONLY You can't write against a read only replica.", "ERR other"} {
			p := newPeer(t, 0)
			p.Errs["mark"] = text
			nc, err := p.dial(bg, "", "")
			require.NoError(t, err)
			c, _, err := newConn(bg, nc, nodeOptions(settings([]*peer{p})[0], time.Second), func() instant { return instant{} }, nil)
			require.NoError(t, err)
			exec := redis.NewCmd(bg, "exec")
			require.NoError(t, c.exchange([]redis.Cmder{redis.NewCmd(bg, "multi"),
				redis.NewCmd(bg, "evalsha", markScript.sha, 1, "lock:redlock:node", "", "m"), redis.NewCmd(bg, "script", "load", witnessLua), exec}))
			answer := redis.NewCmd(bg, "evalsha", scripts[opRelease].sha, 1, "lock:a", "token", "c")
			require.ErrorIs(t, c.exchange([]redis.Cmder{answer}), errReplyShape, text)
			require.Nil(t, answer.Val())
			c.close()
		}
	})
}

// A node that cannot take its marker votes for nobody, and is asked about once a second.
func TestAMarkerThatIsRefusedCostsOneConnectionASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 5)
		p := guarded(t, ps)
		warm(t, p)
		ps[0].do(func() { ps[0].Errs["mark"] = "OOM command not allowed when used memory > 'maxmemory'." })
		ps[0].reboot(true)
		ps[0].do(func() { delete(ps[0].Fields, "marker") })
		for range 100 {
			l := mustLock(t, p)
			time.Sleep(100 * time.Millisecond)
			require.NotEqual(t, l.Token(), ps[0].owner("lock:a"), "it has no vote")
			require.NoError(t, l.Unlock(bg))
		}
		s := p.Stats().Nodes[0]
		require.False(t, s.Steady)
		require.Contains(t, s.NoVote, "OOM")
		require.LessOrEqual(t, s.Reconnects, uint64(15), "%+v", s)
	})
}

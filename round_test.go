package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	model "github.com/seed71a1c8e3/redlock/internal/peer"
	"github.com/stretchr/testify/require"
)

func TestAVoteAfterTheNodeTimeoutDecidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := testPool(t, newPeers(t, 3)).quorum
		terms, _, err := (&poolOptions{drift: drift{0.01, 0}}).terms(nil)
		require.NoError(t, err)
		terms.nodeTimeout = 250 * time.Millisecond
		for _, c := range []struct {
			wait time.Duration
			want verdict
		}{{250 * time.Millisecond, won}, {251 * time.Millisecond, unknown}} {
			start := q.clock.now()
			h := newHold(terms, []string{"a"}, []string{"a"}, "token", 3, start)
			r := q.newRound(opAcquire, h, start, terms.ttl, 2)
			r.done = make(chan struct{})
			r.open = 3
			time.Sleep(c.wait) // nobody's timer fires: the caller is frozen, say
			for i := range 2 {
				r.answered(&request{call: &r.call, node: i}, vote{kind: voteGrant})
			}
			<-r.done
			require.Equal(t, c.want, r.verdict)
			require.Equal(t, 2, h.holding(q.clock.now(), everyNode), "late or not, they hold it")
		}
	})
}

func TestALocksNodeTimeoutIsAQuarterOfItsTTL(t *testing.T) { // FAULTS 6
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps)
		warm(t, p)
		for _, x := range ps {
			x.freeze()
		}
		start := time.Now()
		_, err := p.TryLock(bg, "a", WithTTL(400*time.Millisecond))
		require.ErrorIs(t, err, ErrNoQuorum)
		require.Equal(t, 100*time.Millisecond, time.Since(start), "not the pool's 250 ms")
		for _, x := range ps {
			x.thaw()
		}
		time.Sleep(4 * time.Second)
		require.Zero(t, leftovers(ps))
	})
}

func TestHeldIsOnlyWhatTheDenialsProve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			held, down int
			want, not  error
		}{{3, 0, ErrHeld, ErrNoQuorum}, {3, 2, ErrHeld, ErrNoQuorum}, {2, 3, ErrNoQuorum, ErrHeld}, {1, 3, ErrNoQuorum, ErrHeld}, {0, 3, ErrNoQuorum, ErrHeld}} {
			ps := newPeers(t, 5)
			for _, x := range ps[:c.held] {
				x.Keys["lock:a"] = model.Value{S: "another's", Expires: time.Now().Add(time.Hour)}
			}
			for _, x := range ps[5-c.down:] {
				x.refuse = true
			}
			p := testPool(t, ps)
			warmOthers(t, p)
			_, err := p.TryLock(bg, "a")
			require.ErrorIs(t, err, c.want, "%+v", c)
			require.NotErrorIs(t, err, c.not, "%+v", c)
			for _, x := range ps[c.held : 5-c.down] {
				x.freeze()
			}
			_, err = p.TryLock(bg, "a") // nothing but the denials until the node timeout
			require.ErrorIs(t, err, c.want, "%+v", c)
			require.NotErrorIs(t, err, c.not, "%+v", c)
		}
	})
}

func TestAMajorityIsMoreThanHalf(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		k, err := Majority.of(n)
		require.NoError(t, err)
		require.Equal(t, want, k, "of %d", n)
		k, err = All.of(n)
		require.NoError(t, err)
		require.Equal(t, n, k)
		_, err = AtLeast(want - 1).of(n)
		require.Error(t, err)
	}
}

func TestANodeInDoubtIsReleasedEvenAfterItDenied(t *testing.T) {
	h := newHold(terms{}, nil, nil, "token", 2, instant{})
	for _, c := range []struct {
		first, then vote
		resent      bool
		release     bool
	}{
		{first: vote{kind: voteDenied}},
		{first: vote{kind: voteNone}, then: vote{kind: voteDenied}, release: true},
		{first: vote{kind: voteDenied}, resent: true, release: true},
		{first: vote{kind: voteGrant}, then: vote{kind: voteDenied}},
	} {
		h.nodes[0] = standing{asked: true}
		h.apply(0, c.first, instant{}, c.resent || c.first.kind == voteNone)
		if c.then.kind != voteNone {
			h.nodes[0].asked = true // a renewal left
			h.apply(0, c.then, instant{}, false)
		}
		require.Equal(t, c.release, h.nodes[0].asked, "%+v", c)
	}
}

// warmOthers connects the nodes whatever they say.
func warmOthers(t *testing.T, p *Pool) {
	t.Helper()
	_, _ = p.TryLock(bg, "another", WithLease(time.Second))
	synctest.Wait()
}

func TestARefillIsNoVote(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ps := newPeers(t, 3)
		p := testPool(t, ps, WithTTL(9*time.Second))
		l := mustLock(t, p)
		time.Sleep(time.Second)
		until := l.ValidUntil()
		ps[1].freeze()
		ps[2].flush()
		for ps[2].owner("lock:a") == "" {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		require.Equal(t, until, l.ValidUntil(), "one node confirms, one was given the key back, one is silent")
		time.Sleep(2 * time.Second)
		require.True(t, l.ValidUntil().After(until), "at the next renewal it has a vote again")
	})
}

func TestADenialDoesNotRuleOutWhatIsStillUnderWay(t *testing.T) {
	h := newHold(terms{}, nil, nil, "token", 1, instant{})
	h.sent(0) // two renewals leave; the first finds a rival, the second finds the key gone and sets it
	h.sent(0)
	h.nodes[0].open--
	h.apply(0, vote{kind: voteDenied}, instant{}, false)
	require.True(t, h.nodes[0].asked)
	h.nodes[0].open--
	h.apply(0, vote{kind: voteRefill}, instant{}, false)
	require.True(t, h.nodes[0].asked)
	h.apply(0, vote{kind: voteDenied}, instant{}, false)
	require.False(t, h.nodes[0].asked)
}

func TestAnOlderGrantDoesNotHideANewerOne(t *testing.T) {
	h := newHold(terms{ttl: 100, validity: 99}, nil, nil, "token", 1, instant{})
	h.apply(0, vote{kind: voteGrant}, instant{50, 50}, false)
	h.apply(0, vote{kind: voteGrant}, instant{20, 20}, false)
	require.Equal(t, instant{50, 50}, h.nodes[0].at)
}

func TestARoundIsDecidedAsSoonAsItCanBe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 4, 5} {
			need := majorityOf(n)
			// won by the fastest need nodes
			ps := newPeers(t, n)
			p := testPool(t, ps)
			warm(t, p)
			for i, x := range ps {
				x.do(func() { x.delay = time.Duration(i+1) * time.Millisecond })
			}
			start := time.Now()
			l := mustLock(t, p)
			require.Equal(t, time.Duration(need)*time.Millisecond, time.Since(start), "%d nodes", n)
			require.NoError(t, l.Unlock(bg))
			time.Sleep(time.Second)

			// out of reach once n-need+1 have denied
			for _, x := range ps {
				x.do(func() { x.Keys["lock:a"] = model.Value{S: "another's"} })
			}
			start = time.Now()
			_, err := p.TryLock(bg, "a")
			require.ErrorIs(t, err, ErrHeld)
			require.Equal(t, time.Duration(n-need+1)*time.Millisecond, time.Since(start), "%d nodes", n)
		}
	})
}

func everyNode(int) bool { return true }

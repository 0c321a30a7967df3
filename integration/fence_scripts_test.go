package integration_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The fence's part of the scripts. A stripe is a counter's field in the hash that also has the marker.

// with runs a script that may create keys, with another marker, fence or stripes than create.
func (s shell) with(script, token, marker, fence string, stripes []string, keys ...string) any {
	s.t.Helper()
	if s.together && len(keys) == 1 && len(stripes) == 1 {
		reply, err := s.batch(marker, script, keys[0], token, 20_000, s.second(1), fence, stripes[0])
		require.NoError(s.t, err)
		return reply
	}
	args := []any{token, 20_000, s.second(1), marker, fence}
	for _, stripe := range stripes {
		args = append(args, stripe)
	}
	reply, err := s.run(script, append(append([]string{}, keys...), state), args...)
	require.NoError(s.t, err)
	return reply
}

// take is an acquire of key "a", in one stripe.
func (s shell) take(token, fence string) any {
	s.t.Helper()
	return s.with("acquire", token, "", fence, []string{"7"}, "a")
}

// count sets counters: stripe, number, stripe, number.
func (s shell) count(pairs ...any) {
	s.t.Helper()
	require.NoError(s.t, s.c.HSet(bg, state, pairs...).Err())
}

// counts checks all counters, the marker and that they have their width.
func (s shell) counts(pairs ...string) {
	s.t.Helper()
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	got := s.c.HGetAll(bg, state).Val()
	require.Equal(s.t, want, got)
	for field, n := range got {
		require.True(s.t, field == "marker" || len(n) == 16 && strings.Trim(n, "0123456789") == "", n)
	}
}

// requireFence checks the fence of a grant: 0 for the proposed one.
func requireFence(t *testing.T, fence int64, reply any) {
	t.Helper()
	require.True(t, granted(reply), "%v", reply)
	if list, ok := reply.([]any); ok {
		require.Equal(t, fence, list[2])
		return
	}
	require.Zero(t, fence, "it answered the proposal")
}

const (
	none16  = "0000000000000000"
	n1      = "0000000000000001"
	n9      = "0000000000000009"
	n10     = "0000000000000010"
	n699    = "0000000000000699"
	n700    = fence
	n701    = "0000000000000701"
	n702    = "0000000000000702"
	last    = "9000000000000000"
	nearly  = "8999999999999999"
	nearly2 = "8999999999999998"
)

func TestFencesInTheAcquireScript(t *testing.T) {
	two := []string{"7", "8"}
	for name, claim := range map[string]func(t *testing.T, s shell){
		"a proposal above the counter is the fence, and the counter": func(t *testing.T, s shell) {
			requireFence(t, 0, s.take("mine", n700))
			s.counts("7", n700)
			require.NoError(t, s.c.Del(bg, "a").Err())
			requireFence(t, 0, s.take("other", n701))
			s.counts("7", n701)
		},
		"a proposal that is not above the counter gets one more": func(t *testing.T, s shell) {
			s.count("7", n700)
			requireFence(t, 701, s.take("mine", n699))
			s.counts("7", n701)
			require.NoError(t, s.c.Del(bg, "a").Err())
			requireFence(t, 702, s.take("other", n701))
			s.counts("7", n702)
		},
		"counters keep their width": func(t *testing.T, s shell) {
			s.count("7", n9)
			requireFence(t, 10, s.take("mine", n1))
			s.counts("7", n10)
		},
		"large numbers are exact": func(t *testing.T, s shell) {
			s.count("7", nearly2)
			requireFence(t, 8_999_999_999_999_999, s.take("mine", n1))
			s.counts("7", nearly)
		},
		"no proposal on empty counters gives 1, and then the next": func(t *testing.T, s shell) {
			requireFence(t, 1, s.take("mine", none16))
			s.counts("7", n1)
			require.NoError(t, s.c.Del(bg, "a").Err())
			requireFence(t, 2, s.take("other", none16))
		},
		"several stripes get one value above all": func(t *testing.T, s shell) {
			for _, order := range [][]string{{"9", "7", "8"}, {"8", "7", "9"}} { // 9 is missing
				require.NoError(t, s.c.FlushAll(bg).Err())
				s.count("7", n700, "8", n9, "other", n10)
				requireFence(t, 701, s.with("acquire", "mine", "", n10, order, "a", "b", "c"))
				s.counts("7", n701, "8", n701, "9", n701, "other", n10)
			}

			require.NoError(t, s.c.Del(bg, "a", "b", "c").Err())
			requireFence(t, 0, s.with("acquire", "other", "", n702, two, "a", "b"))
			s.counts("7", n702, "8", n702, "9", n701, "other", n10)
		},
		"several keys may share a stripe": func(t *testing.T, s shell) {
			s.count("7", n700)
			requireFence(t, 701, s.with("acquire", "mine", "", n10, []string{"7"}, "a", "b", "c"))
			s.counts("7", n701)
			s.has(twenty, "a", "mine", "b", "mine", "c", "mine")
		},
		"the same token again gets another fence": func(t *testing.T, s shell) {
			requireFence(t, 0, s.take("mine", n700))
			for i := range 3 {
				requireFence(t, int64(701+i), s.take("mine", n700))
			}
			require.NoError(t, s.c.Del(bg, "a").Err())
			requireFence(t, 704, s.with("acquire", "other", "", n10, two, "a", "b"))
			requireFence(t, 705, s.with("acquire", "other", "", n10, two, "a", "b"))
			s.counts("7", "0000000000000705", "8", "0000000000000705")
		},
		"releases do not need the counters": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "mine", ten).Err())
			require.NoError(t, s.c.Set(bg, state, "v", 0).Err())
			reply, err := s.release("mine", "a")
			require.NoError(t, err)
			require.Equal(t, int64(0), reply)
			s.has(0)
		},
		"the same token with a key missing gets another fence": func(t *testing.T, s shell) {
			requireFence(t, 0, s.with("acquire", "mine", "", n700, two, "a", "b"))
			require.NoError(t, s.c.Del(bg, "b").Err())
			requireFence(t, 701, s.with("acquire", "mine", "", n700, two, "a", "b"))
			s.counts("7", n701, "8", n701)
		},
		"the last number is given once": func(t *testing.T, s shell) {
			s.count("7", nearly)
			requireFence(t, 9_000_000_000_000_000, s.take("mine", n700))
			require.NoError(t, s.c.Del(bg, "a").Err())
			for _, proposal := range []string{none16, n700, last} {
				require.Equal(t, int64(-3), s.take("other", proposal))
				s.counts("7", last)
				s.has(0)
			}
			s.count("8", n10)
			require.Equal(t, int64(-3), s.with("acquire", "other", "", n700, two, "a", "b"))
			s.counts("7", last, "8", n10)
			s.has(0)
		},
		"an acquire that is denied, late or fails counts nothing": func(t *testing.T, s shell) {
			s.count("7", n10)
			require.NoError(t, s.c.Set(bg, "a", "another's", ten).Err())
			require.NoError(t, s.c.HSet(bg, "h", "f", "v").Err())
			requireDenied(t, s.take("mine", n700), 1, ten)
			requireDenied(t, s.with("acquire", "mine", "", n700, two, "b", "a"), 2, ten)
			reply, err := s.acquire("mine", -1, "b")
			require.NoError(t, err)
			require.Equal(t, int64(-1), reply)
			_, err = s.acquire("mine", 1, "b", "h")
			require.ErrorContains(t, err, "WRONGTYPE")
			s.counts("7", n10)
		},
		"a server with another marker, or none, writes nothing": func(t *testing.T, s shell) {
			s.count("7", n10)
			require.Equal(t, int64(-2), s.with("acquire", "mine", "m1", n700, two, "a", "b"))
			s.counts("7", n10)
			s.count("marker", "m2")
			require.Equal(t, int64(-2), s.with("acquire", "mine", "m1", n700, two, "a", "b"))
			require.Equal(t, int64(-2), s.with("acquire", "mine", "m", n700, []string{"7"}, "a"))
			s.counts("7", n10, "marker", "m2")
			s.has(0)

			s.count("marker", "m1")
			requireFence(t, 0, s.with("acquire", "mine", "m1", n700, two, "a", "b"))
			s.counts("7", n700, "8", n700, "marker", "m1")
		},
		"counters that are no hash are foreign data": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, state, "v", 0).Err())
			_, err := s.acquire("mine", 1, "a")
			require.ErrorContains(t, err, "WRONGTYPE")
			require.Equal(t, "v", s.c.Get(bg, state).Val())
			s.has(0)
		},
	} {
		t.Run(name, func(t *testing.T) { scripts(t, claim) })
	}
}

func TestFencesInTheRenewScript(t *testing.T) {
	three := []string{"7", "8", "9"}
	renew := func(s shell, marker string, keys ...string) any {
		s.t.Helper()
		return s.with("renew", "mine", marker, n700, three, keys...)
	}
	hold := func(s shell, keys ...string) {
		s.t.Helper()
		for _, k := range keys {
			require.NoError(s.t, s.c.Set(bg, k, "mine", ten).Err())
		}
	}
	for name, claim := range map[string]func(t *testing.T, s shell){
		"raises what is below the fence, and nothing else": func(t *testing.T, s shell) {
			hold(s, "a", "b")
			s.count("7", n699, "8", n701, "other", n10)
			require.Equal(t, int64(1), renew(s, "", "a", "b"))
			s.counts("7", n700, "8", n701, "9", n700, "other", n10)
			require.Equal(t, int64(1), renew(s, "", "a", "b"))
			s.counts("7", n700, "8", n701, "9", n700, "other", n10)
		},
		"raises where it refills, too": func(t *testing.T, s shell) {
			hold(s, "a")
			s.count("8", n699)
			require.Equal(t, int64(2), renew(s, "", "a", "b"))
			s.counts("7", n700, "8", n700, "9", n700)
			s.has(twenty, "a", "mine", "b", "mine")

			require.NoError(t, s.c.FlushAll(bg).Err())
			require.Equal(t, int64(2), renew(s, "", "a", "b"))
			s.counts("7", n700, "8", n700, "9", n700)
		},
		"raises nothing unless every key is ours": func(t *testing.T, s shell) {
			hold(s, "a")
			s.count("7", n10)
			require.NoError(t, s.c.Set(bg, "b", "another's", ten).Err())
			require.NoError(t, s.c.RPush(bg, "l", "mine").Err())
			require.Equal(t, int64(0), renew(s, "", "a", "b"))
			require.Equal(t, int64(0), renew(s, "", "missing", "b"))
			require.Equal(t, int64(0), renew(s, "", "a", "l"))
			s.counts("7", n10)

			reply, err := s.run("renew", []string{"a", "missing", state}, "mine", 20_000, s.second(-1), "", n700, "7")
			require.NoError(t, err)
			require.Equal(t, int64(-1), reply)
			s.counts("7", n10)
		},
		"without the marker ours is prolonged, and no vote": func(t *testing.T, s shell) {
			for _, marker := range []string{"", "m2", "m", "m11"} {
				require.NoError(t, s.c.FlushAll(bg).Err())
				hold(s, "a", "b")
				want := []string{"7", n700, "8", n700, "9", n700}
				if marker != "" {
					s.count("marker", marker)
					want = append(want, "marker", marker)
				}
				require.Equal(t, int64(3), renew(s, "m1", "a", "b"))
				s.counts(want...)
				s.has(twenty, "a", "mine", "b", "mine")
			}
		},
		"without the marker what is missing is refilled, and no vote": func(t *testing.T, s shell) {
			hold(s, "a")
			s.count("marker", "m2", "7", n10)
			require.Equal(t, int64(3), renew(s, "m1", "a", "b"))
			s.counts("marker", "m2", "7", n700, "8", n700, "9", n700)
			s.has(twenty, "a", "mine", "b", "mine")
		},
		"without the marker another's is left, and nothing written": func(t *testing.T, s shell) {
			hold(s, "a")
			s.count("marker", "m2", "7", n10)
			require.NoError(t, s.c.Set(bg, "b", "another's", ten).Err())
			require.Equal(t, int64(-2), renew(s, "m1", "a", "b"))
			require.Equal(t, int64(-2), renew(s, "m1", "c", "b"))
			s.counts("marker", "m2", "7", n10)
			s.has(ten, "a", "mine", "b", "another's")
		},
		"with the marker it votes": func(t *testing.T, s shell) {
			s.count("marker", "m1")
			require.Equal(t, int64(2), renew(s, "m1", "a"))
			require.Equal(t, int64(1), renew(s, "m1", "a"))
			require.NoError(t, s.c.Set(bg, "a", "another's", ten).Err())
			require.Equal(t, int64(0), renew(s, "m1", "a"))
			s.counts("marker", "m1", "7", n700, "8", n700, "9", n700)
		},
	} {
		t.Run(name, func(t *testing.T) { scripts(t, claim) })
	}
}

// A release gives back keys, never numbers.
func TestAReleaseLeavesTheCounters(t *testing.T) {
	scripts(t, func(t *testing.T, s shell) {
		requireFence(t, 0, s.take("mine", n700))
		_, err := s.run("release", []string{"a"}, "mine", "redlock:free:")
		require.NoError(t, err)
		s.counts("7", n700)
		require.Equal(t, time.Duration(-1), s.c.PTTL(bg, state).Val(), "they do not run out")
		requireFence(t, 701, s.take("other", n700))
	})
}

// The most that one MultiLock may ask for: Lua's stack has room for it.
func TestAsManyStripesAsThereMayBe(t *testing.T) {
	scripts(t, func(t *testing.T, s shell) {
		var keys, stripes []string
		for i := range 1024 {
			keys, stripes = append(keys, "k"+strconv.Itoa(i)), append(stripes, strconv.Itoa(i))
		}
		s.count("1023", n700)
		requireFence(t, 701, s.with("acquire", "mine", "", n10, stripes, keys...))
		counters := s.c.HGetAll(bg, state).Val()
		require.Len(t, counters, 1024)
		for _, n := range counters {
			require.Equal(t, n701, n)
		}
		require.Equal(t, int64(1), s.with("renew", "mine", "", n702, stripes, keys...))
		require.Equal(t, n702, s.c.HGet(bg, state, "0").Val())
	})
}

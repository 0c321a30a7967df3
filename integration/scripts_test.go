package integration_test

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// shell runs the scripts of the library on one server, as they lie in its source.
type shell struct {
	t        *testing.T
	c        *redis.Client
	together bool // what asks for one key is asked by the batch script
}

// run loads a script from ../scripts and calls it by its digest, as the library does.
func (s shell) run(name string, keys []string, args ...any) (any, error) {
	s.t.Helper()
	source, err := os.ReadFile("../scripts/" + name + ".lua")
	require.NoError(s.t, err)
	sum := sha1.Sum(source)
	sha, err := s.c.ScriptLoad(bg, string(source)).Result()
	require.NoError(s.t, err)
	require.Equal(s.t, hex.EncodeToString(sum[:]), sha)
	return s.c.EvalSha(bg, sha, keys, args...).Result()
}

// second is the server's clock, moved by some seconds.
func (s shell) second(more int64) int64 { return s.c.Time(bg).Val().Unix() + more }

// state is the hash with the marker and the counters; fence is what acquires propose and renewals raise to.
const state, fence = "state", "0000000000000700"

// create runs a script that may create keys, on a server that is taken for steady, with all keys in stripe 7.
func (s shell) create(script string, keys []string, token string, ttl, second int64) (any, error) {
	s.t.Helper()
	if s.together && len(keys) == 1 {
		return s.batch("", script, keys[0], token, ttl, second, fence, "7")
	}
	return s.run(script, append(slices.Clone(keys), state), token, ttl, second, "", fence, "7")
}

// release runs that script.
func (s shell) release(token string, keys ...string) (any, error) {
	s.t.Helper()
	if s.together && len(keys) == 1 {
		return s.batch("", "release", keys[0], token)
	}
	return s.run("release", keys, token, "redlock:free:")
}

// batch asks the batch script for one thing, between two that touch nothing, and gives the answer as the script for one
// request would.
func (s shell) batch(marker, script, key string, args ...any) (any, error) {
	s.t.Helper()
	all := []any{marker, 0, "release", "nobody", script}
	switch script { // args: token, TTL, last second, fence, stripe
	case "acquire":
		all[1], all[4] = args[2], args[1]
		all = append(all, args[0], args[3], args[4])
	case "renew":
		all[1] = args[2]
		all = append(all, args[0], args[3], args[4], args[1])
	default:
		all = append(all, args...)
	}
	reply, err := s.run("batch", []string{"nothing", key, "nothing", state}, append(all, "release", "nobody")...)
	require.NoError(s.t, err)
	list := reply.([]any)
	require.Len(s.t, list, 4)
	require.Equal(s.t, []any{int64(0), int64(0)}, []any{list[0], list[2]})
	require.True(s.t, granted(list[3]))
	switch answer := list[1].(type) {
	case string:
		return nil, errors.New(answer)
	case int64:
		if script == "acquire" && answer == 1 {
			return list[3], nil
		}
	case []any:
		if answer[0] == int64(0) {
			return []any{answer[0], list[3], answer[1]}, nil
		}
	}
	return list[1], nil
}

func (s shell) acquire(token string, more int64, keys ...string) (any, error) {
	s.t.Helper()
	return s.create("acquire", keys, token, 10_000, s.second(more))
}

func (s shell) renew(token string, more int64, keys ...string) (any, error) {
	s.t.Helper()
	return s.create("renew", keys, token, 20_000, s.second(more))
}

// has checks the strings on the server: all keys, and no other. Their TTL is at least ttl less a second.
func (s shell) has(ttl time.Duration, pairs ...string) {
	s.t.Helper()
	keys := slices.DeleteFunc(s.c.Keys(bg, "*").Val(), func(k string) bool { return k == state })
	require.Len(s.t, keys, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		require.Equal(s.t, pair[1], s.c.Get(bg, pair[0]).Val(), pair[0])
		left := s.c.PTTL(bg, pair[0]).Val()
		require.LessOrEqual(s.t, left, ttl)
		require.Greater(s.t, left, ttl-5*time.Second)
	}
}

// granted says whether an acquire was: the reply is the server's time, or {0, the server's time, the fence}.
func granted(reply any) bool {
	if list, ok := reply.([]any); ok && len(list) == 3 && list[0] == int64(0) {
		reply = list[1]
	}
	micros, ok := reply.(int64)
	return ok && time.Since(time.UnixMicro(micros)).Abs() < time.Minute
}

// scripts runs a claim on an empty server of each true kind.
func scripts(t *testing.T, claim func(t *testing.T, s shell)) {
	t.Helper()
	onEvery(t, func(t *testing.T, r *rig) {
		for name, together := range map[string]bool{"alone": false, "together": true} {
			t.Run(name, func(t *testing.T) {
				s := shell{t, r.Server(0).Client(), together}
				claim(t, s)
				require.NoError(t, s.c.FlushAll(bg).Err())
			})
		}
	})
}

const ten, twenty = 10 * time.Second, 20 * time.Second

func TestAcquireScript(t *testing.T) {
	for name, claim := range map[string]func(t *testing.T, s shell){
		"grants a free key, and the same token again": func(t *testing.T, s shell) {
			for range 3 {
				reply, err := s.acquire("mine", 1, "a")
				require.NoError(t, err)
				require.True(t, granted(reply), reply)
				s.has(ten, "a", "mine")
			}
		},
		"the same token again has its full TTL": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "mine", time.Second).Err())
			reply, err := s.acquire("mine", 1, "a")
			require.NoError(t, err)
			require.True(t, granted(reply), reply)
			s.has(ten, "a", "mine")
		},
		"grants several keys, some of which hold the token": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "b", "mine", time.Second).Err())
			reply, err := s.acquire("mine", 1, "a", "b", "c")
			require.NoError(t, err)
			require.True(t, granted(reply), reply)
			s.has(ten, "a", "mine", "b", "mine", "c", "mine")
		},
		"in its last second still": func(t *testing.T, s shell) {
			eventually(t, patience, "granted within one second", func() error {
				before := s.second(0)
				reply, err := s.create("acquire", []string{"a"}, "mine", 10_000, before)
				require.NoError(t, err)
				if s.second(0) != before {
					return errNotYet
				}
				require.True(t, granted(reply), reply)
				return nil
			})
			s.has(ten, "a", "mine")
		},
		"is late after it, and writes nothing": func(t *testing.T, s shell) {
			for _, keys := range [][]string{{"a"}, {"a", "b"}} {
				reply, err := s.acquire("mine", -1, keys...)
				require.NoError(t, err)
				require.Equal(t, int64(-1), reply)
				s.has(0)
			}
			require.NoError(t, s.c.Set(bg, "a", "mine", ten).Err())
			reply, err := s.create("acquire", []string{"a"}, "mine", 90_000, s.second(-1))
			require.NoError(t, err)
			require.Equal(t, int64(-1), reply)
			s.has(ten, "a", "mine")
		},
		"is denied by another's key": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "another's", ten).Err())
			reply, err := s.acquire("mine", 1, "a")
			require.NoError(t, err)
			requireDenied(t, reply, 1, ten)
			s.has(ten, "a", "another's")
		},
		"is denied by one of several keys, and writes none": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "c", "another's", ten).Err())
			require.NoError(t, s.c.Set(bg, "b", "mine", ten).Err())
			reply, err := s.create("acquire", []string{"a", "b", "c"}, "mine", 90_000, s.second(1))
			require.NoError(t, err)
			requireDenied(t, reply, 3, ten)
			s.has(ten, "b", "mine", "c", "another's")
		},
		"is denied by a key without expiry": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "another's", 0).Err())
			reply, err := s.acquire("mine", 1, "a")
			require.NoError(t, err)
			require.Equal(t, []any{int64(1), int64(-1)}, reply)
			require.Equal(t, "another's", s.c.Get(bg, "a").Val())
		},
		"compares whole tokens": func(t *testing.T, s shell) {
			for _, other := range []string{"min", "mine ", "Mine", "mine\x00", ""} {
				require.NoError(t, s.c.Set(bg, "a", other, ten).Err())
				reply, err := s.acquire("mine", 1, "a")
				require.NoError(t, err)
				requireDenied(t, reply, 1, ten)
				s.has(ten, "a", other)
			}
		},
		"fails on foreign data, which stays": func(t *testing.T, s shell) {
			require.NoError(t, s.c.HSet(bg, "b", "f", "v").Err())
			for _, keys := range [][]string{{"b"}, {"a", "b"}, {"b", "a"}} {
				_, err := s.acquire("mine", 1, keys...)
				require.ErrorContains(t, err, "WRONGTYPE")
				require.Equal(t, map[string]string{"f": "v"}, s.c.HGetAll(bg, "b").Val())
				require.Zero(t, s.c.Exists(bg, "a").Val())
				require.Equal(t, time.Duration(-1), s.c.PTTL(bg, "b").Val())
			}
		},
		"grants what has run out": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "another's", 20*time.Millisecond).Err())
			eventually(t, time.Second, "granted", func() error {
				reply, err := s.acquire("mine", 1, "a")
				require.NoError(t, err)
				return is(granted(reply))
			})
			s.has(ten, "a", "mine")
		},
	} {
		t.Run(name, func(t *testing.T) { scripts(t, claim) })
	}
}

func requireDenied(t *testing.T, reply any, key int64, ttl time.Duration) {
	t.Helper()
	pair, ok := reply.([]any)
	require.True(t, ok, "%v", reply)
	require.Len(t, pair, 2)
	require.Equal(t, key, pair[0])
	left := time.Duration(pair[1].(int64)) * time.Millisecond
	require.LessOrEqual(t, left, ttl)
	require.Greater(t, left, ttl-5*time.Second)
}

func TestRenewScript(t *testing.T) {
	for name, claim := range map[string]func(t *testing.T, s shell){
		"prolongs what is ours": func(t *testing.T, s shell) {
			for _, keys := range [][]string{{"a"}, {"a", "b"}} {
				require.NoError(t, s.c.MSet(bg, "a", "mine", "b", "mine").Err())
				require.NoError(t, s.c.PExpire(bg, "b", twenty).Err())
				reply, err := s.renew("mine", 1, keys...)
				require.NoError(t, err)
				require.Equal(t, int64(1), reply)
				s.has(twenty, "a", "mine", "b", "mine")
			}
		},
		"refills what is missing": func(t *testing.T, s shell) {
			reply, err := s.renew("mine", 1, "a")
			require.NoError(t, err)
			require.Equal(t, int64(2), reply)
			s.has(twenty, "a", "mine")

			reply, err = s.renew("mine", 1, "a", "b", "c")
			require.NoError(t, err)
			require.Equal(t, int64(2), reply)
			s.has(twenty, "a", "mine", "b", "mine", "c", "mine")

			reply, err = s.renew("mine", 1, "a", "b", "c")
			require.NoError(t, err)
			require.Equal(t, int64(1), reply)
		},
		"is late after its second, and writes nothing": func(t *testing.T, s shell) {
			reply, err := s.renew("mine", -1, "a")
			require.NoError(t, err)
			require.Equal(t, int64(-1), reply)
			s.has(0)

			require.NoError(t, s.c.Set(bg, "b", "mine", ten).Err())
			for _, keys := range [][]string{{"b"}, {"a", "b"}} {
				reply, err = s.renew("mine", -1, keys...)
				require.NoError(t, err)
				require.Equal(t, int64(-1), reply)
				s.has(ten, "b", "mine")
			}
		},
		"is not ours if any key is another's, and writes nothing": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "mine", ten).Err())
			require.NoError(t, s.c.Set(bg, "b", "another's", ten).Err())
			for _, keys := range [][]string{{"b"}, {"a", "b"}, {"c", "b"}, {"b", "c", "a"}} {
				reply, err := s.renew("mine", 1, keys...)
				require.NoError(t, err)
				require.Equal(t, int64(0), reply)
				s.has(ten, "a", "mine", "b", "another's")
			}
		},
		"is not ours if a key holds foreign data, and writes nothing": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "mine", ten).Err())
			require.NoError(t, s.c.HSet(bg, "b", "f", "v").Err())
			for _, keys := range [][]string{{"b"}, {"a", "b"}, {"c", "b"}} {
				reply, err := s.renew("mine", 1, keys...)
				require.NoError(t, err)
				require.Equal(t, int64(0), reply)
				require.Equal(t, map[string]string{"f": "v"}, s.c.HGetAll(bg, "b").Val())
				require.Equal(t, time.Duration(-1), s.c.PTTL(bg, "b").Val())
				require.LessOrEqual(t, s.c.PTTL(bg, "a").Val(), ten)
				require.Zero(t, s.c.Exists(bg, "c").Val())
			}
		},
	} {
		t.Run(name, func(t *testing.T) { scripts(t, claim) })
	}
}

func TestReleaseScript(t *testing.T) {
	for name, claim := range map[string]func(t *testing.T, s shell){
		"deletes what is ours": func(t *testing.T, s shell) {
			require.NoError(t, s.c.MSet(bg, "a", "mine", "b", "mine", "c", "mine").Err())
			reply, err := s.release("mine", "a", "b", "c", "d")
			require.NoError(t, err)
			require.Equal(t, int64(0), reply, "nobody was told")
			s.has(0)
		},
		"leaves what is missing": func(t *testing.T, s shell) {
			reply, err := s.release("mine", "a")
			require.NoError(t, err)
			require.Equal(t, int64(0), reply)
			s.has(0)
		},
		"leaves others' keys and foreign data": func(t *testing.T, s shell) {
			require.NoError(t, s.c.Set(bg, "a", "another's", ten).Err())
			require.NoError(t, s.c.Set(bg, "d", "mine", ten).Err())
			require.NoError(t, s.c.HSet(bg, "b", "f", "v").Err())
			require.NoError(t, s.c.RPush(bg, "c", "mine").Err())
			reply, err := s.release("mine", "a", "b", "c", "d")
			require.NoError(t, err)
			require.Equal(t, int64(0), reply)
			require.Equal(t, "another's", s.c.Get(bg, "a").Val())
			require.LessOrEqual(t, s.c.PTTL(bg, "a").Val(), ten)
			require.Equal(t, map[string]string{"f": "v"}, s.c.HGetAll(bg, "b").Val())
			require.Equal(t, []string{"mine"}, s.c.LRange(bg, "c", 0, -1).Val())
			require.Zero(t, s.c.Exists(bg, "d").Val())
		},
	} {
		t.Run(name, func(t *testing.T) { scripts(t, claim) })
	}
}

// Many requests in one call are answered one by one, in their order, and see what those before them did.
func TestBatchScript(t *testing.T) {
	onEvery(t, func(t *testing.T, r *rig) {
		s := shell{t, r.Server(0).Client(), true}
		require.NoError(t, s.c.Set(bg, "held", "another's", ten).Err())
		require.NoError(t, s.c.HSet(bg, "foreign", "f", "v").Err())
		require.NoError(t, s.c.HSet(bg, state, "marker", "m", "8", "0000000000000800").Err())
		reply, err := s.run("batch", []string{"a", "b", "held", "foreign", "a", "a", "b", "gone", state}, "m", s.second(1),
			10_000, "t1", fence, "7",
			10_000, "t2", fence, "8",
			10_000, "t3", fence, "7",
			10_000, "t4", fence, "7",
			"release", "t1",
			10_000, "t6", fence, "7",
			"renew", "t2", "0000000000000801", "8", 20_000,
			"renew", "t7", "0000000000000900", "9", 20_000)
		require.NoError(t, err)
		list := reply.([]any)
		require.Len(t, list, 9)
		require.Equal(t, int64(1), list[0], "the proposed fence")
		require.Equal(t, []any{int64(0), int64(801)}, list[1], "one more than the counter")
		requireDenied(t, list[2], 1, ten)
		require.Contains(t, list[3], "WRONGTYPE")
		require.Equal(t, int64(0), list[4], "released, and nobody was told")
		require.Equal(t, []any{int64(0), int64(701)}, list[5], "above the first one's, although that was in the same call")
		require.Equal(t, int64(1), list[6], "still ours")
		require.Equal(t, int64(2), list[7], "refilled")
		require.True(t, granted(list[8]))
		require.Equal(t, map[string]string{"marker": "m", "7": "0000000000000701", "8": "0000000000000801", "9": "0000000000000900"},
			s.c.HGetAll(bg, state).Val())
		require.Equal(t, "t6", s.c.Get(bg, "a").Val())
		require.Equal(t, "t2", s.c.Get(bg, "b").Val())
		require.Equal(t, "t7", s.c.Get(bg, "gone").Val())
		require.Greater(t, s.c.PTTL(bg, "b").Val(), ten)

		reply, err = s.run("batch", []string{"late", "b", "a", state}, "m", s.second(-1),
			10_000, "t5", fence, "7",
			"renew", "t2", "0000000000000802", "8", 30_000,
			"release", "t6")
		require.NoError(t, err)
		require.Equal(t, []any{int64(-1), int64(-1), int64(0)}, reply.([]any)[:3], "a release is never late")
		require.LessOrEqual(t, s.c.PTTL(bg, "b").Val(), 2*ten)
		require.Equal(t, "0000000000000801", s.c.HGet(bg, state, "8").Val())
		require.NoError(t, s.c.FlushAll(bg).Err())
	})
}

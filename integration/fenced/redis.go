package fenced

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Records keeps each record in a Redis hash with two fields, value and fence: in one key, so that they are compared and
// written in one step, live in one cluster slot, and expire or fail over together.
//
// A record must not be deleted, nor given a TTL, while an old owner may still be alive: its fence goes with it, and the
// next write of whoever comes is taken. Write an empty value instead. A failover to a replica that lags can lose the
// last writes, fence and value alike; where that matters the record belongs in a database that does not.
type Records struct{ Client redis.Scripter }

// The server runs a script as a whole: nobody gets between the comparison and the write. Lua's numbers are exact to
// 2^53, just above the largest fence.
var (
	claimScript = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
local fence = tonumber(ARGV[1])
if fence < seen then
  return redis.error_reply('STALE ' .. string.format('%.0f', seen))
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return redis.call('HGET', KEYS[1], 'value') or ''`)

	writeScript = redis.NewScript(`
local seen = redis.call('HGET', KEYS[1], 'fence')
if not seen then
  return redis.error_reply('UNCLAIMED')
end
if tonumber(ARGV[1]) < tonumber(seen) then
  return redis.error_reply('STALE ' .. seen)
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 'OK'`)
)

// Claim makes fence the lowest that may write the record from now on, and returns its value; "" if it has none. It is
// the first thing to do with a new lock. ErrStale if a later owner was here.
func (r Records) Claim(ctx context.Context, key string, fence uint64) (string, error) {
	return r.run(ctx, claimScript, key, fence)
}

// Write sets the value. Equal fences pass: one owner may write many times. ErrStale if a later owner has claimed the
// record; any other error leaves open whether it was written, and the same write may be sent again.
func (r Records) Write(ctx context.Context, key string, fence uint64, value string) error {
	_, err := r.run(ctx, writeScript, key, fence, value)
	return err
}

func (r Records) run(ctx context.Context, script *redis.Script, key string, fence uint64, args ...any) (string, error) {
	if err := checkFence(fence); err != nil {
		return "", err
	}
	value, err := script.Run(ctx, r.Client, []string{key}, append([]any{fence}, args...)...).Text()
	switch {
	case redis.HasErrorPrefix(err, "STALE"):
		return "", fmt.Errorf("%w: %s: fence %d after %s", ErrStale, key, fence, err.Error()[len("STALE "):])
	case redis.HasErrorPrefix(err, "UNCLAIMED"):
		return "", fmt.Errorf("%w: %s", ErrUnclaimed, key)
	case err != nil:
		return "", fmt.Errorf("fenced: %s: %w", key, err)
	}
	return value, nil
}

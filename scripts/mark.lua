-- mark: replace this server's marker, if it is still the expected one, and raise counters before that.
--
-- KEYS[1]  the hash with this server's marker and fence counters
-- ARGV[1]  the marker that is expected; empty: none
-- ARGV[2]  the new one
-- ARGV[3]  ... pairs of a stripe and what its counter must not be below, 16 digits
--
-- Replies
--   1       replaced
--   text    the marker that is there instead; nothing was written

local now = redis.call('HGET', KEYS[1], 'marker') or ''
if now ~= ARGV[1] then
  return now
end
for i = 3, #ARGV, 2 do
  local counter = redis.call('HGET', KEYS[1], ARGV[i])
  if not counter or counter < ARGV[i + 1] then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', KEYS[1], 'marker', ARGV[2])
return 1

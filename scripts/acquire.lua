-- acquire: take every key for one token, or none.
--
-- KEYS     the keys
-- ARGV[1]  token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the last second of this server's clock at which the request may be applied
--
-- Replies
--   t            granted: every key holds the token and expires after the TTL; t is this server's time at the grant,
--                in microseconds since 1970
--   -1           late: nothing was written
--   {i, ms}      denied: key i belongs to another for another ms milliseconds (-1: without expiry); nothing was written
--   error        WRONGTYPE where a key holds foreign data, which stays untouched; any other: unknown, to be undone
--
-- The same token twice gives the same answer, so a request whose reply was cut off can be sent again.

local time = redis.call('TIME')
if tonumber(time[1]) > tonumber(ARGV[3]) then
  return -1
end
local granted = time[1] * 1000000 + time[2]

if #KEYS == 1 and redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return granted
end

for i = 1, #KEYS do
  local owner = redis.call('GET', KEYS[i])
  if owner and owner ~= ARGV[1] then
    return {i, redis.call('PTTL', KEYS[i])}
  end
end
for i = 1, #KEYS do
  -- A renewal may have been here before a top-up: a key of ours is never cut short.
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
    redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  end
end
return granted

-- join: take a place in the fair queues of some resources, or keep it.
--
-- KEYS     the queues: hashes of places and until when each is kept, in milliseconds of this server's clock
-- ARGV[1]  place: 16 digits that order it, and a name of its own
-- ARGV[2]  for how long it is kept, in milliseconds
-- ARGV[3]  the last second of this server's clock at which the request may be applied
--
-- Replies
--   {n, t}  how many places are before it, in the queue where there are most; 0: it is the first everywhere; at this
--           server's time t, in microseconds since 1970
--   -1      late: nothing was written
--
-- Places whose time is over are removed. A queue lives as long as its last place.

local time = redis.call('TIME')
if tonumber(time[1]) > tonumber(ARGV[3]) then
  return -1
end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = 0
for i = 1, #KEYS do
  local before, last = 0, now + ARGV[2]
  local places = redis.call('HGETALL', KEYS[i])
  for k = 1, #places, 2 do
    local expires = tonumber(places[k + 1]) or 0
    if expires < now then
      redis.call('HDEL', KEYS[i], places[k])
    elseif places[k] ~= ARGV[1] then
      if places[k] < ARGV[1] then
        before = before + 1
      end
      if expires > last then
        last = expires
      end
    end
  end
  redis.call('HSET', KEYS[i], ARGV[1], string.format('%.0f', now + ARGV[2]))
  redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', last + 1))
  if before > most then
    most = before
  end
end
return {most, time[1] * 1000000 + time[2]}

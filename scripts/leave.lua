-- leave: give up a place in the fair queues of some resources, and tell whose turn it is now: "place time", by this
-- server's clock in microseconds since 1970.
--
-- KEYS     the queues
-- ARGV[1]  place
-- ARGV[2]  ... the channel of each resource
--
-- Replies
--   n       in how many of the queues it was

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = string.format(' %.0f', time[1] * 1000000 + time[2])
local left = 0
for i = 1, #KEYS do
  left = left + redis.call('HDEL', KEYS[i], ARGV[1])
  local first
  local places = redis.call('HGETALL', KEYS[i])
  for k = 1, #places, 2 do
    if (not first or places[k] < first) and (tonumber(places[k + 1]) or 0) >= now then
      first = places[k]
    end
  end
  if first then
    redis.pcall('PUBLISH', ARGV[1 + i], first .. at)
  end
end
return left

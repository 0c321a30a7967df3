-- peek: how long do these keys last?
--
-- KEYS     the keys
--
-- Replies with the list of what PTTL says of each: milliseconds; -1 without expiry; -2 if it is not there.

local left = {}
for i = 1, #KEYS do
  left[i] = redis.call('PTTL', KEYS[i])
end
return left

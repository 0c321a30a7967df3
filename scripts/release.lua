-- release: delete the keys that hold the token, and no other.
--
-- KEYS     the keys
-- ARGV[1]  token
--
-- Replies
--   n       how many keys were deleted; keys of others, foreign data and missing keys stay as they are
--
-- Afterwards no key of this server holds the token, so any number is a success.

local deleted = 0
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == ARGV[1] then
    deleted = deleted + redis.call('DEL', KEYS[i])
  elseif type(owner) == 'table' and owner.err and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    return owner
  end
end
return deleted

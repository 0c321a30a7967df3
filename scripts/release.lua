-- release: delete the keys that hold the token, and no other, and tell those who wait for them.
--
-- KEYS     the keys
-- ARGV[1]  token
-- ARGV[2]  what the name of a key's channel begins with
--
-- Replies
--   n       how many subscribers were told, of the key that has the most; keys of others, foreign data and missing keys
--           stay as they are, and nobody is told of them
--   -1      the same, but PUBLISH was refused
--
-- Afterwards no key of this server holds the token, so any number is a success.

local told = 0
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == ARGV[1] then
    redis.call('DEL', KEYS[i])
    local n = redis.pcall('PUBLISH', ARGV[2] .. KEYS[i], '')
    if type(n) ~= 'number' then
      told = -1
    elseif told >= 0 and n > told then
      told = n
    end
  elseif type(owner) == 'table' and owner.err and not string.find(owner.err, 'WRONGTYPE', 1, true) then
    return owner
  end
end
return told

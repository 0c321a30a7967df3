-- renew: prolong the keys of one token; give back those that this server lost.
--
-- KEYS     the keys
-- ARGV[1]  token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the last second of this server's clock at which a lost key may be given back
--
-- Replies
--   1       still ours: every key held the token; each now expires after the TTL
--   2       refilled: no key was another's, at least one was missing and was set again; this is no vote, for the
--           server forgot the lock for a while
--   -1      late: a key is missing and it is too late to set it; what is ours was prolonged
--   0       not ours: a key belongs to another, or holds foreign data; nothing was written
--
-- Prolonging after that second is harmless: it only touches keys that hold the token, and a release is still to come.

local missing = {}
for i = 1, #KEYS do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == false then
    missing[#missing + 1] = KEYS[i]
  elseif owner ~= ARGV[1] then
    if type(owner) == 'table' and owner.err and not string.find(owner.err, 'WRONGTYPE', 1, true) then
      return owner
    end
    return 0
  end
end

for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[2])
end
if #missing == 0 then
  return 1
end
if tonumber(redis.call('TIME')[1]) > tonumber(ARGV[3]) then
  return -1
end
for i = 1, #missing do
  redis.call('SET', missing[i], ARGV[1], 'PX', ARGV[2], 'NX')
end
return 2

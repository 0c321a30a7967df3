-- renew: prolong the keys of one token, give back those that this server lost, and raise the counters to its fence.
--
-- KEYS     the keys, and last the hash with this server's marker and fence counters
-- ARGV[1]  token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the last second of this server's clock at which the request may be applied
-- ARGV[4]  the marker of a steady server; empty where every server without a marker is taken for one
-- ARGV[5]  the lock's fence, 16 digits
-- ARGV[6]  ... the stripes of the keys, each once
--
-- Replies
--   1       still ours: every key held the token; each now expires after the TTL, and no counter is below the fence
--   2       refilled: no key was another's, at least one was missing and was set again; this is no vote, for the
--           server forgot the lock for a while
--   3       not steady: as 1 or 2, but no vote either
--   0       not ours: a key belongs to another, or holds foreign data; nothing was written
--   -1      late: nothing was written
--   text    the marker, where none was expected: nothing was written
--   -2      not steady and not ours: nothing was written
--
-- Nothing is prolonged after that second either: a late renewal could keep alive, for a TTL, a key that an earlier one
-- gave back in time to a lock that has ended since. Counters are raised only where every key is ours: raised elsewhere
-- they would give two owners one fence.

if tonumber(redis.call('TIME')[1]) > tonumber(ARGV[3]) then
  return -1
end
local found = redis.call('HMGET', KEYS[#KEYS], 'marker', unpack(ARGV, 6))
if ARGV[4] == '' and found[1] then
  return found[1]
end
local steady = ARGV[4] == '' or found[1] == ARGV[4]

local missing = {}
for i = 1, #KEYS - 1 do
  local owner = redis.pcall('GET', KEYS[i])
  if owner == false then
    missing[#missing + 1] = KEYS[i]
  elseif owner ~= ARGV[1] then
    if type(owner) == 'table' and owner.err and not string.find(owner.err, 'WRONGTYPE', 1, true) then
      return owner
    end
    return steady and 0 or -2
  end
end

for i = 1, #KEYS - 1 do
  redis.call('PEXPIRE', KEYS[i], ARGV[2])
end
for i = 2, #found do
  if not found[i] or found[i] < ARGV[5] then
    redis.call('HSET', KEYS[#KEYS], ARGV[4 + i], ARGV[5])
  end
end
for i = 1, #missing do
  redis.call('SET', missing[i], ARGV[1], 'PX', ARGV[2], 'NX')
end
if not steady then
  return 3
end
return #missing == 0 and 1 or 2

-- acquire: take every key for one token, or none, and answer a fence above all that this server gave for them.
--
-- KEYS     the keys, and last the hash with this server's marker and fence counters
-- ARGV[1]  token
-- ARGV[2]  TTL in milliseconds
-- ARGV[3]  the last second of this server's clock at which the request may be applied
-- ARGV[4]  the marker of a steady server; empty where every server without a marker is taken for one
-- ARGV[5]  the fence that is proposed, 16 digits; all zero: none
-- ARGV[6]  ... the stripes of the keys, each once
--
-- Replies
--   t            granted: every key holds the token and expires after the TTL, and the fence is the proposed one;
--                t is this server's time at the grant, in microseconds since 1970
--   {0, t, f}    granted with fence f instead
--   -1           late: nothing was written
--   -2           not steady: nothing was written
--   text         the marker, where none was expected: nothing was written
--   -3           the counters are used up: nothing was written
--   {i, ms}      denied: key i belongs to another for another ms milliseconds (-1: without expiry); nothing was written
--   error        WRONGTYPE where a key holds foreign data, which stays untouched; any other: unknown, to be undone
--
-- The same token twice is granted twice, so a request whose reply was cut off can be sent again; but with another
-- fence, for the first copy may have failed between its key and its counter. Counters are fixed-width decimals and
-- compared as text.

local call, argv = redis.call, ARGV
local time = call('TIME')
if tonumber(time[1]) > tonumber(argv[3]) then
  return -1
end
local keys, token, ttl, marker, proposed = #KEYS - 1, argv[1], argv[2], argv[4], argv[5]
local state = KEYS[keys + 1]
local found = argv[7] and call('HMGET', state, 'marker', unpack(argv, 6)) or call('HMGET', state, 'marker', argv[6])
if found[1] ~= marker and (found[1] or marker ~= '') then
  return marker == '' and found[1] or -2
end
local granted = time[1] * 1000000 + time[2]

local top = found[2] or ''
for i = 3, #found do
  if found[i] and found[i] > top then
    top = found[i]
  end
end
local fence = proposed
if top >= proposed then
  if (tonumber(top) or 9e15) >= 9e15 then
    return -3
  end
  fence = string.format('%016.0f', tonumber(top) + 1)
elseif proposed == '0000000000000000' then
  fence = '0000000000000001'
end

if keys == 1 and call('SET', KEYS[1], token, 'NX', 'PX', ttl) then
  call('HSET', state, argv[6], fence)
else
  for i = 1, keys do
    local owner = call('GET', KEYS[i])
    if owner and owner ~= token then
      return {i, call('PTTL', KEYS[i])}
    end
  end
  for i = 6, #argv do
    call('HSET', state, argv[i], fence)
  end
  for i = 1, keys do
    -- A renewal may have been here before a top-up: a key of ours is never cut short.
    if call('PTTL', KEYS[i]) < tonumber(ttl) then
      call('SET', KEYS[i], token, 'PX', ttl)
    end
  end
end
if fence == proposed then
  return granted
end
return {0, granted, tonumber(fence)}

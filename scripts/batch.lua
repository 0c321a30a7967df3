-- batch: what acquire, renew and release do, for many requests of one key each, in their order. One call costs a
-- server half of what the calls one by one would; the arguments are a third of that, so there are few.
--
-- KEYS     a key for each request, and last the hash with this server's marker and fence counters
-- ARGV[1]  the marker of a steady server; empty where every server without a marker is taken for one
-- ARGV[2]  the last second of this server's clock at which an acquire or a renewal may be applied
-- ARGV[3]  ... for each request:
--            'release', token
--            'renew', token, fence, stripe, TTL in milliseconds
--            TTL in milliseconds, token, fence, stripe: acquire
--
-- Replies with a list: an answer for each request, and last this server's time in microseconds since 1970.
--   as acquire answers, but 1 for a grant with the proposed fence, and {0, f} for one with another
--   as renew answers
--   as release answers
--   text         the marker, where none was expected: nothing was written; any other says what went wrong: unknown, to
--                be undone
--
-- One request that fails does not touch the others. All counters are written at the end: where that fails, every
-- acquire and every renewal has.

local call, pcall, keys, argv = redis.call, redis.pcall, KEYS, ARGV
local count = #keys - 1
local state, marker = keys[count + 1], argv[1]
local time = call('TIME')

-- 1. The marker, and the counters that matter.
local stripes, at = {'marker'}, 3
for i = 1, count do
  if argv[at] == 'release' then
    at = at + 2
  else
    stripes[#stripes + 1] = argv[at + 3]
    at = at + (argv[at] == 'renew' and 5 or 4)
  end
end
local found = pcall('HMGET', state, unpack(stripes))
local steady = marker == '' or found[1] == marker
local no = found.err or marker == '' and found[1] -- then only releases can be answered
if not no and tonumber(time[1]) > tonumber(argv[2]) then
  no = -1
end
local counters, raised = {}, {}
for i = 2, #stripes do
  counters[stripes[i]] = found[i] or ''
end

local function failure(reply)
  return type(reply) == 'table' and reply.err
end

-- Foreign data under a key is nobody's token, and no reason to give up.
local function failed(owner)
  local err = failure(owner)
  return err and not string.find(err, 'WRONGTYPE', 1, true) and err
end

local function acquire(key, ttl, token, proposed, stripe)
  if no or not steady then
    return no or -2
  end
  local top = counters[stripe]
  local fence = proposed
  if top >= proposed then
    if (tonumber(top) or 9e15) >= 9e15 then
      return -3
    end
    fence = string.format('%016.0f', tonumber(top) + 1)
  elseif proposed == '0000000000000000' then
    fence = '0000000000000001'
  end
  local set = pcall('SET', key, token, 'NX', 'PX', ttl)
  if not set then
    local owner = pcall('GET', key)
    if failure(owner) then
      return owner.err
    end
    if owner ~= token then
      return {1, call('PTTL', key)}
    end
    if call('PTTL', key) < tonumber(ttl) then
      set = pcall('SET', key, token, 'PX', ttl)
    end
  end
  if failure(set) then
    return set.err
  end
  counters[stripe], raised[stripe] = fence, fence
  if fence == proposed then
    return 1
  end
  return {0, tonumber(fence)}
end

local function renew(key, ttl, token, fence, stripe)
  if no then
    return no
  end
  local owner = pcall('GET', key)
  if owner and owner ~= token then
    return failed(owner) or steady and 0 or -2
  end
  local done
  if owner then
    done = pcall('PEXPIRE', key, ttl)
  else
    done = pcall('SET', key, token, 'PX', ttl, 'NX')
  end
  if failure(done) then
    return done.err
  end
  if counters[stripe] < fence then
    counters[stripe], raised[stripe] = fence, fence
  end
  if not steady then
    return 3
  end
  return owner and 1 or 2
end

local channels = string.sub(state, 1, -5) .. 'free:' -- the state's key is prefix + redlock:node

local function release(key, token)
  local owner = pcall('GET', key)
  if owner ~= token then
    return failed(owner) or 0
  end
  local deleted = pcall('DEL', key)
  if failure(deleted) then
    return deleted.err
  end
  local told = pcall('PUBLISH', channels .. key, '')
  return failure(told) and -1 or told
end

-- 2. One after the other.
local replies = {}
at = 3
for i = 1, count do
  local what = argv[at]
  if what == 'release' then
    replies[i] = release(keys[i], argv[at + 1])
    at = at + 2
  elseif what == 'renew' then
    replies[i] = renew(keys[i], argv[at + 4], argv[at + 1], argv[at + 2], argv[at + 3])
    at = at + 5
  else
    replies[i] = acquire(keys[i], what, argv[at + 1], argv[at + 2], argv[at + 3])
    at = at + 4
  end
end

-- 3. The counters.
local fields = {}
for stripe, fence in next, raised do
  fields[#fields + 1] = stripe
  fields[#fields + 1] = fence
end
if #fields > 0 then
  local done = pcall('HSET', state, unpack(fields))
  if failure(done) then
    at = 3
    for i = 1, count do
      if argv[at] == 'release' then
        at = at + 2
      else
        replies[i] = done.err
        at = at + (argv[at] == 'renew' and 5 or 4)
      end
    end
  end
end
replies[count + 1] = time[1] * 1000000 + time[2]
return replies

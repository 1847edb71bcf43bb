-- What scripts begin with, and whom they wake; and the short way of a message that is sent by itself.

-- part: lone
-- A plain message of its own for later, as most are sent, in straight lines: its topic and its slot are in use already, and clock,
-- lane and spread are as usual. All else comes to what follows; then nothing was written here.
--
-- Each field that is read costs as much as ten lines here, so it asks for few. Rights it does not ask for: without the right to
-- make the first write nothing is changed, without that to make the second one the time is stored, and the rest are like these.

local function put_lone()
  local call, byte, sub, format, pack = redis.call, string.byte, string.sub, string.format, struct.pack
  local lane, salt, topic, level, when, blob = ARGV[3], ARGV[5], ARGV[10], ARGV[11], ARGV[13], ARGV[14]
  local instant = byte(when) == 64
  local flags = (byte(blob) or 255) - (instant and 32 or 0)
  local least = flags == 0 and 1 or flags == 1 and 3 or flags == 8 and 5 or flags == 9 and 7 or math.huge -- as PLAIN has it
  if #blob < least or #salt ~= 2 or ARGV[12] ~= '1' then return nil end
  if not instant and #when < 5 then return nil end -- due in less than ten seconds, which the usual way is quicker for

  local meta = KEYS[1]
  local time, stored = call('TIME'), call('HMGET', meta, 'mark', 'layout', 'shards')
  local raw, layout = time[1] * 1000000 + time[2], stored[2]
  local us = ARGV[1] == '' and raw or ARGV[1] * 1000
  if stored[3] ~= ARGV[6] or not stored[1] or (layout ~= '3' and layout ~= '4') then return nil end
  if not (us - stored[1] >= 0 and us - ARGV[2] * 1000 >= 0) then return nil end -- the clock was moved back
  local now = (us - us % 1000) / 1000
  local ceiling = now * 1000 == us and now or now + 1
  local due = instant and tonumber(sub(when, 2)) or ceiling + when
  if not (due > now and due - now <= ARGV[8] + 0 and due % 1 == 0 and ARGV[7] - now >= 0) then return nil end
  if due - due % 65536 <= now then return nil end -- in the minute that has begun: somebody may have to be woken for it

  local prefix = sub(meta, 1, -5)
  local lanes = prefix .. 'lanes:' .. format('%d', (now - now % 600000) / 600000)
  local record, known = call('HGET', lanes, lane), call('HGET', prefix .. 'topics', topic)
  if not record or not known or struct.unpack('>I6', record) - ARGV[4] >= 0 then return nil end

  -- The coarsest calendar that has room, as in `early`. A slot is entered when it has begun, so of others that need not be asked.
  local digits, first = string.match(known, '^%x+'), 65 + level * 8
  local own = prefix .. digits .. ':'
  local h, slots = own .. 'h', own .. 'slots'
  local kind, after, form, length, room = string.char(first), due % 134217728, '>I4', 134217728, nil
  local f = call('HMGET', h, 'live', 'far', 'c' .. kind)
  local live, name, n = f[1], nil, nil
  if not live then return nil end
  live = live + 0
  room = live < 16416 and 512 or math.min(4096, (live - live % 32) / 32)
  local start = due - after
  if start > now or start / length > (f[3] or 0) + 0 then
    name = kind .. format('%x', start / length)
    n = (call('HGET', slots, name) or 0) + 0
  end
  if not n or n >= room then
    kind, after, form, length, n = string.char(first + 1), due % 4194304, '>I3', 4194304, nil
    start = due - after
    if start > now or start / length > (call('HGET', h, 'c' .. kind) or 0) + 0 then
      name = kind .. format('%x', start / length)
      n = (call('HGET', slots, name) or 0) + 0
    end
    if not n or n >= room then
      kind, after, form, length = string.char(first + 2), due % 65536, '>I2', 65536
      start = due - after
      name = kind .. format('%x', start / length)
      n = (call('HGET', slots, name) or 0) + 0
      if n >= 16384 then return nil end
    end
  end
  if n == 0 then return nil end
  if start <= now then -- somebody may have to be woken for it
    if call('LLEN', prefix .. 'w:' .. topic) == 0 or call('HGET', meta, 'expiry') then return nil end
    local waits = call('HMGET', h, 'next', 'paused')
    if (waits[2] or '0') ~= '0' or start < (waits[1] or 0) + 0 then return nil end
  end

  local mark = format('%d', us)
  call('HSET', meta, 'raw', us == raw and mark or format('%d', raw), 'mark', mark)
  call('RPUSH', own .. 'b' .. name .. format(':%x', (n - n % 64) / 64), salt .. pack(form, after) .. blob)
  call('HSET', slots, name, format('%d', n + 1))
  call('HSET', h, 'live', format('%d', live + 1), 'far', format('%d', (f[2] or 0) + 1))
  local told, id = sub(mark, 1, -4), pack('>c1I6I3', kind, start / length, n)
  local rounded = ceiling == now and told or format('%d', ceiling)
  -- as cmsgpack packs the answer, in a third of the time
  local text, other = pack('>I6BB', ARGV[4], 149, 160 + #told) .. told, string.char(160 + #rounded) .. rounded
  call('HSET', lanes, lane, text .. other .. '\162' .. salt .. '\146' .. string.char(160 + #digits) .. digits .. '\170' .. id .. '\144')
  return {told, rounded, salt, {digits, id}, {}}
end

if ARGV[9] == '1' and #ARGV == 14 then
  local placed = put_lone()
  if placed then return placed end
end

-- part: begin
-- What every script begins with: its keys, its rights, its arguments, its time.
--
-- KEYS[1] is the hash `meta`; all other keys share its prefix. KEYS[2] never exists: while these keys' slot moves to another
-- node of a cluster, the server refuses a script that names a missing key before its first line, not in the middle.
-- An error stops a script and undoes nothing. So a script parses its arguments, checks its rights, and only then writes.

local LAYOUT = '3' -- of what is stored; it rises when that changes
local SPREAD = '4' -- the same where `shards` is more than a number, which releases before cannot read: so they refuse it

local META, P = KEYS[1], string.sub(KEYS[1], 1, -5)
local call = redis.call
local floor, byte, char, sub, format = math.floor, string.byte, string.char, string.sub, string.format
local pack, unpack_ = struct.pack, struct.unpack

-- Rights are checked first: a missing one would stop the script half-way. script.py puts a line for each command that the
-- script calls in place of `may()`, with arguments, as newer servers do not tell of a call that has too few.
local may = redis.acl_check_cmd
if may then
  may()
end

local function number(text)
  local value = tonumber(text)
  if not value or value ~= value or value < 0 or value > 9007199254740991 or value % 1 ~= 0 then
    error('BADARG a script of bide was given an argument that is no number', 0)
  end
  return value
end

local NEXT = 7 -- the arguments from here on are the verb's own
local function take_text()
  NEXT = NEXT + 1
  local value = ARGV[NEXT]
  if not value then error('BADARG a script of bide was given too few arguments', 0) end
  return value
end
local function take_number() return number(take_text()) end

-- Engine time never goes back and never stands still. If the server's clock is moved back behind `mark`, engine time runs at
-- half speed until the two agree. `unknown`: the clock was moved back, and `raw` and `mark` must be stored to count from.
local raw
do
  local time = call('TIME')
  raw = time[1] * 1000000 + time[2]
end
local stored = call('HMGET', META, 'raw', 'mark', 'layout', 'expiry', 'shards', 'upkeep')
local us, known, unknown = raw, number(ARGV[2]), false
do
  local mark = tonumber(stored[2] or 0)
  if ARGV[1] ~= '' then
    us = math.max(mark, number(ARGV[1]) * 1000)
  else
    if raw < mark then us = mark + floor(math.max(0, raw - tonumber(stored[1])) / 2) end
    unknown = raw < tonumber(stored[1] or 0) or us < known * 1000
  end
  us = math.max(us, known * 1000)
end
local now, ceiling = (us - us % 1000) / 1000, (us + -us % 1000) / 1000
-- The clock as it stands, in ms: behind `now` if it was set back. Instants wait for it.
local wall = floor(math.min(us, ARGV[1] ~= '' and number(ARGV[1]) * 1000 or raw) / 1000)
local shards = ARGV[6] -- how they are spread, as topology.py tells
if not string.find(shards, '^%d[%d:;@|]*$') then error('BADARG shards', 0) end
local function this_time() -- as fields of `meta`
  local was = format('%d', raw)
  local mark = us == raw and was or format('%d', us)
  if stored[3] and stored[5] then return 'raw', was, 'mark', mark end
  return 'raw', was, 'mark', mark, 'layout', tonumber(shards) and LAYOUT or SPREAD, 'shards', shards
end

-- What an older release has left empty is taken over with the first write, and from then on that release refuses it.
if stored[3] and stored[3] ~= LAYOUT and stored[3] ~= SPREAD then
  local empty = stored[3] == '1' or stored[3] == '2'
  for kind, count in pairs({topics = 'HLEN', held = 'HLEN', open = 'HLEN', lease = 'ZCARD', graves = 'ZCARD'}) do
    empty = empty and redis.pcall(count, P .. kind) == 0
  end
  if not empty then return redis.error_reply('BADLAYOUT ' .. stored[3]) end
  stored[3] = false
end

-- A caller that has it otherwise is refused; but what has run already gets its answer, in `before`.
local spread_otherwise = stored[5] and stored[5] ~= shards and redis.error_reply('BADSHARDS ' .. stored[5])
if spread_otherwise and ARGV[3] == '' then return spread_otherwise end

-- Whether this shard only empties itself: messages go to those that the end of `shards` names.
local function retiring()
  if not string.find(shards, '|', 1, true) then return false end
  local own = tonumber(string.match(META, ':(%d+)[.%d]*}:meta$'))
  local count, first = string.match(shards, '(%d+)@?(%d*)[;%d]*$')
  first = tonumber(first) or 0
  return own < first or own >= first + count
end

-- All that follows is one function, whose `end` script.py adds. Making a closure is cheaper then: Lua searches a list of open
-- upvalues for each local that it takes from the function around it, and not for those from further out.
return (function()

-- The due time of '@' and an instant, or of a delay in ms; and whether it is an instant, which the clock has not reached.
-- A delay is rounded up, so never early; no delay means now.
local function due_of(when, longest, now, ceiling, wall)
  if byte(when) == 64 then
    local at = number(sub(when, 2))
    if at - now > longest then error('TOOFAR', 0) end
    if at > wall then return at, true end
    return now
  end
  local delay = number(when)
  if delay > longest then error('TOOFAR', 0) end
  return delay == 0 and now or ceiling + delay
end

-- The answer of a script that writes nothing else. It stores an unknown time, or time would stand still. For a user without
-- the right to write it does, until a user with that right calls.
local function tell(reply)
  if unknown and (not may or may('HDEL', META, '-') and may('HSET', META, '-', '-')) then
    redis.pcall('HDEL', META, '-') -- first a write that a full server allows
    redis.pcall('HSET', META, this_time())
  end
  return reply
end

-- An operation is a lane (the stream of one connection) and a number. Run again, it gets its first answer.
local LANE, NUMBER, UNTIL = ARGV[3], number(ARGV[4]), number(ARGV[7])
local SALT = ARGV[5] or ''
local AGE = 600000 -- ms that operations are remembered
local LIFE = 2700000 -- ms until their keys expire: two such epochs at half speed, and more
local function of_epoch(what, back) return P .. what .. format(':%d', floor(now / AGE) - back) end
local LANES = of_epoch('lanes', 0)

local function remembered(lane) return call('HGET', LANES, lane) or call('HGET', of_epoch('lanes', 1), lane) end

local function remember(lane, record)
  if call('HSET', LANES, lane, record) == 1 then call('PEXPIRE', LANES, LIFE) end
end

-- The answer, if this must not run, and whether it has run before. An operation runs once, in the order of its lane, and not
-- after UNTIL, when its sender has given it up.
local function before()
  local record = LANE ~= '' and remembered(LANE)
  local last = record and unpack_('>I6', record) or -1
  if last > NUMBER then return redis.error_reply('OVERTAKEN') end
  if last == NUMBER then return #record > 6 and cmsgpack.unpack(sub(record, 7)) or nil, true end
  if spread_otherwise then return spread_otherwise end
  if now > UNTIL then return redis.error_reply(format('TOOOLD %d %d', now, now - known)) end
end

-- No lease ends and nothing else needs upkeep before this time. It may be too early, but never too late.
local upkeep = number(stored[6] or 0)
local function need_upkeep(at)
  if at >= upkeep then return end
  upkeep = at
  call('HSET', META, 'upkeep', format('%d', at))
end

-- The first write. A full server refuses a script whose first write allocates memory, and allows all others.
local function store_time()
  call('HSET', META, this_time())
end
local function begin_growing()
  -- Shard 0 must have the number of shards before another shard is written to.
  if not stored[5] and not string.find(META, ':0}:meta$') then error('UNPINNED', 0) end
  store_time()
end
local function begin_shrinking()
  call('HDEL', META, '-')
  store_time()
end

-- Remember that the operation has run, and its answer, if a second run could not find it out.
local function note_run(reply)
  if LANE ~= '' then remember(LANE, pack('>I6', NUMBER) .. (reply and cmsgpack.pack(reply) or '')) end
end

-- The same for one that writes little else, if anything.
local function note_look()
  local did = LANE ~= '' and redis.pcall('HSET', LANES, LANE, pack('>I6', NUMBER))
  if did == 1 then call('PEXPIRE', LANES, LIFE) end
  if type(did) == 'table' then -- a full server refuses that as the first write
    call('HDEL', META, '-')
    note_run()
  end
end

local function answer(reply)
  note_run(reply)
  return reply
end

-- part: wake
-- Who is woken, and whose alarm is set.

-- One token a topic is enough until it is taken.
local function push_token(name)
  local key = P .. 'w:' .. name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
  if stored[4] then call('SET', P .. 'alarm', '1', 'PX', 1) end -- there are clients with wake=expiry
end

-- Wake a receiver of a topic that has a message due at that time.
local function wake(topic, due)
  if topic.f.paused ~= 0 then return end
  if due < topic.f.next then set(topic, 'next', due) end
  if topic.woken then return end
  topic.woken = true
  push_token(topic.name)
end

-- Alarms: if every idle receiver knew the next due time, all would wake for one message. So one sets an alarm for it, and a
-- second one an alarm that is a moment later. `timers` has by topic: due, and these two. The others get no time. That is needed
-- only when it is due soon: before what is due later, all look again with their next sweep.

local BEHIND = 50 -- ms between the two alarms
local SOON = 6000 -- ms: more than the time between two sweeps
local NOBODY = '--------'

local function owners_of(record) return sub(record, 7, 14), sub(record, 15, 22) end

-- When this receiver should claim again for a message that is due then; math.huge when others will.
local function alarm(me, topic, due)
  if due - now > SOON then return due end
  local record = call('HGET', P .. 'timers', topic.name)
  local one, two = me, NOBODY
  if record and unpack_('>I6', record) == due then
    one, two = owners_of(record)
    if one == me then return due end
    if two == me then return due + BEHIND end
    if two ~= NOBODY then return math.huge end
    two = me
  end
  redis.pcall('HSET', P .. 'timers', topic.name, pack('>I6', due) .. one .. two) -- a full server may refuse it: all wake then
  return one == me and due or due + BEHIND
end

-- A receiver that got messages may be busy when its alarm goes off, so it gives the alarm to the other one, if there is one.
local function hand_on(me, names)
  local records = #names > 0 and call('HMGET', P .. 'timers', unpack(names)) or {}
  for i, record in ipairs(records) do
    local one, two
    if record then one, two = owners_of(record) end
    if one == me and two ~= NOBODY then
      call('HDEL', P .. 'timers', names[i])
      push_token(names[i])
    end
  end
end

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
local shards = ARGV[6] -- how they are spread, as spread.py tells
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

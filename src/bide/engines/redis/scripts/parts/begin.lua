-- What every script begins with: its keys, its rights, its arguments, its time.
--
-- KEYS[1] is the hash `meta`; all other keys have its prefix. KEYS[2] never exists: while the slot of these keys moves
-- to another node of a cluster, the server refuses a script that names it before its first line, not in the middle.
-- Redis stops a script at an error and keeps what it has written, so: parse everything, ask for all rights, then write.

local LAYOUT = '2' -- of all that is stored; it rises with each change

local META, P = KEYS[1], string.sub(KEYS[1], 1, -5)
local call = redis.call
local floor, byte, char, sub, format = math.floor, string.byte, string.char, string.sub, string.format
local pack, unpack_ = struct.pack, struct.unpack

-- Rights are asked for first: one that is missing would stop the script half-way. All the commands that a script calls
-- are put into these parentheses when it is loaded.
local function may(...)
  if not redis.acl_check_cmd then return end
  for i = 1, select('#', ...) do
    local name = select(i, ...)
    if not redis.acl_check_cmd(name, META) then error('NORIGHT ' .. name, 0) end
  end
end
may()

local function number(text)
  local value = tonumber(text)
  if not value or value ~= value or value < 0 or value > 9007199254740991 or value ~= floor(value) then
    error('BADARG a script of bide was given an argument that is no number', 0)
  end
  return value
end

local ARGS, NEXT = ARGV, 7 -- the arguments from here on are the verb's own
local function take_text()
  NEXT = NEXT + 1
  local value = ARGS[NEXT]
  if not value then error('BADARG a script of bide was given too few arguments', 0) end
  return value
end
local function take_number() return number(take_text()) end

-- The clock: milliseconds, which never go back and never stand still. While the server's clock is behind the mark
-- (somebody set it back), engine time goes on at half its speed until the two have met. `unknown`: how far the clock
-- was set back is not stored yet, and half speed needs it.
local time = call('TIME')
local raw = time[1] * 1000000 + time[2]
local stored = call('HMGET', META, 'raw', 'mark', 'layout', 'expiry', 'shards')
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
local now, ceiling = floor(us / 1000), math.ceil(us / 1000)
local shards = format('%d', number(ARGV[6]))
local function this_time() -- as `meta` has it
  if stored[3] and stored[5] then return {'raw', format('%d', raw), 'mark', format('%d', us)} end
  return {'raw', format('%d', raw), 'mark', format('%d', us), 'layout', LAYOUT, 'shards', shards}
end

if stored[3] and stored[3] ~= LAYOUT then
  return redis.error_reply('BADLAYOUT ' .. stored[3])
end

if stored[5] and stored[5] ~= shards then
  return redis.error_reply('BADSHARDS ' .. stored[5])
end

-- All that follows is a function of its own, whose `end` is added when the script is loaded. A function that takes a name
-- from the one around it has Lua look for it among all that were taken there before; a name from further out is at hand.
return (function()

-- A time as it is asked for, ms from now or '@' and an instant: never early, and what is for now is for now.
local function due_of(when, longest, now, ceiling)
  if byte(when) == 64 then
    local at = number(sub(when, 2))
    if at - now > longest then error('TOOFAR', 0) end
    return math.max(at, now)
  end
  local delay = number(when)
  if delay > longest then error('TOOFAR', 0) end
  return delay == 0 and now or ceiling + delay
end

-- What a script answers that may write nothing else: time would stand still if such scripts only told it. It does for a
-- user who may only read, until somebody comes who may write.
local function tell(reply)
  if unknown and (not redis.acl_check_cmd or redis.acl_check_cmd('HDEL', META) and redis.acl_check_cmd('HSET', META)) then
    redis.pcall('HDEL', META, '-') -- first what a full server does, too
    redis.pcall('HSET', META, unpack(this_time()))
  end
  return reply
end

-- An operation is a lane (one connection's serial stream) and its number: run again, it gets its first answer.
local LANE, NUMBER, UNTIL = ARGV[3], number(ARGV[4]), number(ARGV[7])
local SALT = ARGV[5] or ''
local AGE = 600000 -- ms that operations are remembered
local LIFE = 2700000 -- ms: twice that long, at half speed, and some
local epoch = floor(now / AGE)

local function remembered(what, name)
  for back = 0, 1 do
    local found = call('HGET', P .. what .. ':' .. format('%d', epoch - back), name)
    if found then return found end
  end
end

local function remember(what, name, record)
  local key = P .. what .. ':' .. format('%d', epoch)
  if call('HSET', key, name, record) == 1 then call('PEXPIRE', key, LIFE) end
end

-- What to answer at once, if this is not to run, and whether it has run before. An operation runs once, in the order of
-- its lane, and not when its sender has given it up, which is so from UNTIL on.
local function before()
  local record = LANE ~= '' and remembered('lanes', LANE)
  local last = record and unpack_('>I6', record) or -1
  if last > NUMBER then return redis.error_reply('OVERTAKEN') end
  if last == NUMBER then return #record > 6 and cmsgpack.unpack(sub(record, 7)) or nil, true end
  if now > UNTIL then return redis.error_reply(format('TOOOLD %d %d', now, now - known)) end
end

-- The first write. A full server refuses a script whose first write allocates, and lets all of it pass otherwise.
local function store_time()
  call('HSET', META, unpack(this_time()))
end
local function begin_growing()
  -- How many shards there are is said in shard 0 before anything is written to another one.
  if not stored[5] and not string.find(META, ':0}:meta$') then error('UNPINNED', 0) end
  store_time()
end
local function begin_shrinking()
  call('HDEL', META, '-')
  store_time()
end

-- Note that the operation has run; what it answered, too, where running it again would not tell.
local function note_run(reply)
  if LANE ~= '' then remember('lanes', LANE, pack('>I6', NUMBER) .. (reply and cmsgpack.pack(reply) or '')) end
end

local function answer(reply)
  note_run(reply)
  return reply
end

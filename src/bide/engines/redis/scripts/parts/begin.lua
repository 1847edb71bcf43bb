-- What every script begins with: its place, its rights, its arguments, its time.
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

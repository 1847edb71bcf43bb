-- What a script begins with that writes: it acts once, and keeps how far time has come.

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

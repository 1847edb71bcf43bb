-- A topic: its number, its counters, and the keys that begin with it.
--
-- A topic is known by a number, which is given once: a topic that has nothing left goes, and comes again under another.
-- Of each level of priority there are three calendars, of coarse, middle and fine slots, and two rows: of what is near,
-- and of what was ready when it came. Together they are the kinds of homes: level * 5 + one of these.

local COARSE, MIDDLE, FINE, NEAR, READY = 0, 1, 2, 3, 4
local SLOT = {[COARSE] = 134217728, [MIDDLE] = 4194304, [FINE] = 65536} -- ms
local WIDTH = {[COARSE] = 4, [MIDDLE] = 3, [FINE] = 2, [NEAR] = 6, [READY] = 6} -- bytes of a due time
local ROOM = 512 -- messages in a slot that is not fine
local BUCKET = 64
local ROW = 1048576 -- numbers of a row that share a slot

local KINDS = {} -- by level and sort, a letter
local LEVEL_OF, SORT_OF = {}, {} -- by letter
for level = 0, 2 do
  KINDS[level] = {}
  for sort = COARSE, READY do
    local kind = format('%x', level * 5 + sort)
    KINDS[level][sort], LEVEL_OF[kind], SORT_OF[kind] = kind, level, sort
  end
end
local function kind_of(level, sort) return KINDS[level][sort] end
local function level_of(kind) return LEVEL_OF[kind] end
local function sort_of(kind) return SORT_OF[kind] end

local topics = {}
local NOTHING = {__index = function() return 0 end}

-- The fields of a topic are numbers, but for its name; one that is missing is 0. `keys` and `index` count keys and the
-- buckets of their index; of a calendar, `c` is the slot that was entered last and `p` how far into it messages were
-- taken out; of a row, `b` is how many came, `p` how many were taken out, and `g` how many of the others are gone.
local function load(digits)
  if topics[digits] ~= nil then return topics[digits] end
  local prefix = P .. digits .. ':'
  local flat = call('HGETALL', prefix .. 'h')
  if #flat == 0 then
    topics[digits] = false
    return false
  end
  local topic = {digits = digits, head = pack('>I5', tonumber(digits, 16)), prefix = prefix, changed = {}, f = setmetatable({}, NOTHING)}
  for i = 1, #flat, 2 do
    if flat[i] == 'name' then topic.name = flat[i + 1] else topic.f[flat[i]] = tonumber(flat[i + 1]) end
  end
  topics[digits] = topic
  return topic
end

local function find_topic(name)
  local digits = call('HGET', P .. 'topics', name)
  return digits and load(digits) or nil
end

local function make_topic(name)
  local topic = find_topic(name)
  if topic then return topic end
  local digits = format('%x', call('HINCRBY', META, 'topic', 1))
  call('HSET', P .. 'topics', name, digits)
  call('HSET', P .. digits .. ':h', 'name', name)
  topics[digits] = nil
  return load(digits)
end

local function set(topic, field, value)
  topic.f[field] = value
  topic.changed[field] = true
end
local function add(topic, field, by) set(topic, field, topic.f[field] + by) end

local function has_life(topic)
  if topic.lives == nil then topic.lives = call('HLEN', topic.prefix .. 'life') > 0 end
  return topic.lives
end

-- Wake one of those who sleep on a topic: a token that nobody has taken yet is enough for all.
local function wake(topic)
  if topic.woken or topic.f.paused ~= 0 then return end
  topic.woken = true
  local key = P .. 'w:' .. topic.name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
end

local function last_bucket(topic, kind, births)
  local slot, n = floor((births - 1) / ROW), (births - 1) % ROW
  return topic.prefix .. 'b' .. kind .. format('%08x%x', slot, floor(n / BUCKET))
end

-- A topic that has nothing left goes, with all its keys: of a slot only the last bucket can be there still.
local function drop(topic)
  local doomed = {'h', 'slots', 'life', 'dead', 'ended'}
  for i, name in ipairs(doomed) do doomed[i] = topic.prefix .. name end
  doomed[#doomed + 1] = P .. 'w:' .. topic.name
  for level = 0, 2 do
    doomed[#doomed + 1] = topic.prefix .. 'due' .. level
    for sort = COARSE, FINE do doomed[#doomed + 1] = topic.prefix .. 'o' .. kind_of(level, sort) end
    for _, sort in ipairs({NEAR, READY}) do
      local births = topic.f['b' .. kind_of(level, sort)]
      if births > 0 then doomed[#doomed + 1] = last_bucket(topic, kind_of(level, sort), births) end
    end
  end
  local slots = call('HGETALL', topic.prefix .. 'slots')
  for i = 1, #slots, 2 do
    if byte(slots[i]) ~= 103 and tonumber(slots[i + 1]) > 0 then -- g: a count of those that are gone
      doomed[#doomed + 1] = topic.prefix .. 'b' .. slots[i] .. format('%x', floor((slots[i + 1] - 1) / BUCKET))
    end
  end
  for i = 1, #doomed, 1000 do call('UNLINK', unpack(doomed, i, math.min(i + 999, #doomed))) end
  call('HDEL', P .. 'topics', topic.name)
  call('ZREM', P .. 'graves', topic.digits)
  topics[topic.digits] = false
end

local function close_topics()
  for _, topic in pairs(topics) do
    if topic then
      if topic.f.live == 0 and topic.f.paused == 0 and topic.f.dropped == 0 then
        drop(topic)
      else
        local values = {}
        for field in pairs(topic.changed) do
          values[#values + 1] = field
          values[#values + 1] = format('%.0f', topic.f[field])
        end
        if #values > 0 then call('HSET', topic.prefix .. 'h', unpack(values)) end
      end
    end
  end
end

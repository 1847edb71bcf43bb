-- A topic: its number, its counters, and the keys that begin with it.
--
-- A topic is known by a number, which is given once: a topic that has nothing left goes, and comes again under another.
-- Of each level of priority there are three calendars, of coarse, middle and fine slots, and two rows: of what is near,
-- and of what was ready when it came. Together they are the kinds of homes: level * 5 + one of these.

local COARSE, MIDDLE, FINE, NEAR, READY = 0, 1, 2, 3, 4
local SLOT = {[0] = 134217728, 4194304, 65536} -- ms, by sort
local FORM = {[0] = '>I4', '>I3', '>I2', '>I6', '>I6'} -- of a due time: from the start of its slot; in a row, as it is
local FLAGS_AT = {[0] = 7, 6, 5, 9, 9} -- where in a value the flags are, behind salt and due time
local ROOM = 512 -- messages in a slot that is not fine
local BUCKET = 64
local ROW = 1048576 -- numbers of a row that share a slot

local KINDS = {[0] = '01234', [1] = '56789', [2] = 'abcde'} -- by level, a letter for each sort of home
local SORT_OF = {['0'] = 0, ['1'] = 1, ['2'] = 2, ['3'] = 3, ['4'] = 4, ['5'] = 0, ['6'] = 1, ['7'] = 2, ['8'] = 3,
                 ['9'] = 4, a = 0, b = 1, c = 2, d = 3, e = 4}
local function kind_of(level, sort) return sub(KINDS[level], sort + 1, sort + 1) end
local function level_of(kind) return floor(tonumber(kind, 16) / 5) end
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

local function use_level(topic, level)
  if topic.f['l' .. level] == 0 then set(topic, 'l' .. level, 1) end
end

-- Wake one of those who sleep on a topic: a token that nobody has taken yet is enough for all.
local function wake(topic)
  if topic.woken or topic.f.paused ~= 0 then return end
  topic.woken = true
  local key = P .. 'w:' .. topic.name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
  if stored[4] then call('SET', P .. 'alarm', '1', 'PX', 1) end -- somebody listens for its expiry
end

local drop -- of a topic that has nothing left; scripts that end messages have it

local function close_topics()
  for _, topic in pairs(topics) do
    if topic then
      if drop and topic.f.live == 0 and topic.f.paused == 0 and topic.f.dropped == 0 then
        drop(topic)
      else
        local values = {}
        for field in pairs(topic.changed) do
          values[#values + 1] = field
          values[#values + 1] = format('%d', topic.f[field])
        end
        if #values > 0 then call('HSET', topic.prefix .. 'h', unpack(values)) end
      end
    end
  end
end

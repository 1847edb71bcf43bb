-- A topic: its number, its counters, and the keys that begin with it.
--
-- A topic is known by a number, which is given once: a topic that has nothing left goes, and comes again under another.
-- `topics` has, by name, the number and behind it a time before which nothing of the topic is due, so that a claim of many
-- topics reads no more of those that have nothing for it. The time may be too early, and never too late.

local NEVER = 9007199254740991 -- such a time, of a topic that has nothing pending or is paused

local topics = {}
local NOTHING = {__index = function() return 0 end}

-- The fields of a topic are numbers, but for its name; one that is missing is 0. `keys` and `index` count keys and the
-- buckets of their index; of a calendar, `s` is one more than its first slot (0: it has none), `c` the slot that was
-- entered last, `p` how far into it messages were taken out, and `d` how many it had, or would have if it were not
-- sealed; of a row, `b` is how many came, `p` how many were taken out, and `g` how many of the others are gone.
-- `next` is the time that `topics` has.
local function load(digits)
  if topics[digits] ~= nil then return topics[digits] end
  local prefix = P .. digits .. ':'
  local flat = call('HGETALL', prefix .. 'h')
  if #flat == 0 then
    topics[digits] = false
    return false
  end
  local topic = {digits = digits, head = pack('>I5', tonumber(digits, 16)), prefix = prefix, changed = {}, entered = {}, calendars = {},
                 f = setmetatable({}, NOTHING)}
  for i = 1, #flat, 2 do
    if flat[i] == 'name' then topic.name = flat[i + 1] else topic.f[flat[i]] = tonumber(flat[i + 1]) end
  end
  topics[digits] = topic
  return topic
end

local function find_topic(name)
  local known = call('HGET', P .. 'topics', name)
  return known and load(string.match(known, '^%x+')) or nil
end

local function set(topic, field, value)
  topic.f[field] = value
  topic.changed[field] = true
end

local function make_topic(name)
  local topic = find_topic(name)
  if topic then return topic end
  local digits = format('%x', call('HINCRBY', META, 'topic', 1))
  call('HSET', P .. 'topics', name, digits)
  call('HSET', P .. digits .. ':h', 'name', name)
  topics[digits] = nil
  topic = load(digits)
  set(topic, 'next', NEVER)
  return topic
end

local function add(topic, field, by) set(topic, field, topic.f[field] + by) end

-- The first slot of a calendar; nil when it has none.
local function first_slot(topic, kind)
  local first = topic.f['s' .. kind]
  if first > 0 then return first - 1 end
end

local function set_first(topic, kind, slot)
  set(topic, 's' .. kind, slot and slot + 1 or 0)
  topic.calendars[level_of(kind)] = nil
end

-- The calendars of a level that have slots.
local function calendars_of(topic, level)
  local kinds = topic.calendars[level]
  if kinds then return kinds end
  kinds = {}
  for sort = COARSE, FINEST do
    local kind = kind_of(level, sort)
    if topic.f['s' .. kind] > 0 then kinds[#kinds + 1] = kind end
  end
  topic.calendars[level] = kinds
  return kinds
end

local function use_level(topic, level)
  if topic.f['l' .. level] == 0 then set(topic, 'l' .. level, 1) end
end

-- A token that nobody has taken yet is enough for all who sleep on a topic.
local function push_token(name)
  local key = P .. 'w:' .. name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
  if stored[4] then call('SET', P .. 'alarm', '1', 'PX', 1) end -- somebody listens for its expiry
end

-- Wake one of those who sleep on a topic, of which something is due then.
local function wake(topic, due)
  if topic.f.paused ~= 0 then return end
  if due < topic.f.next then set(topic, 'next', due) end
  if topic.woken then return end
  topic.woken = true
  push_token(topic.name)
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
        if topic.changed.next then call('HSET', P .. 'topics', topic.name, format('%s@%d', topic.digits, topic.f.next)) end
      end
    end
  end
end

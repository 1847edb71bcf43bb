-- A topic: its number, its counters, and the keys that begin with it.
--
-- Each topic has a number, which is used once: an empty topic is removed, and made again under another number.
-- `topics` has by name the number and a time before which nothing of the topic is due, so a claim of many topics reads no more
-- of those without a due message. That time may be too early, but never too late.

local NEVER = 9007199254740991 -- the time of a topic that is paused or has nothing pending

local topics = {}
local topic_of
do
  local zero = {__index = function() return 0 end}

  function topic_of(digits)
    local prefix = P .. digits .. ':'
    return {digits = digits, head = pack('>I5', tonumber(digits, 16)), prefix = prefix, changed = {}, entered = {}, calendars = {},
            f = setmetatable({}, zero)}
  end
end

-- The fields of a topic are numbers, but for its name; one that is missing is 0. `keys` counts keys,
-- `crowd` those that found no room in their bucket, and `index` the buckets of their index; of a calendar, `s` is one more than its first slot (0: it has none), `c` the slot that was
-- entered last, `p` how far into it messages were taken out, and `d` how many it had, or would have if it were not
-- sealed; of a row, `b` is how many came, `p` how many were taken out, and `g` how many of the others are gone.
-- `next` is the time that `topics` has. `expires` is 1 if one of its messages had an expiry. `dropped` counts dead letters, and
-- `last` is when the last of them was dropped.
local function load(digits)
  if topics[digits] ~= nil then return topics[digits] end
  local flat = call('HGETALL', P .. digits .. ':h')
  if #flat == 0 then
    topics[digits] = false
    return false
  end
  local topic = topic_of(digits)
  for i = 1, #flat, 2 do
    if flat[i] == 'name' then topic.name = flat[i + 1] else topic.f[flat[i]] = tonumber(flat[i + 1]) end
  end
  topics[digits] = topic
  return topic
end

-- What `topics` has of one: its number, and a time before which nothing of it is due.
local function noted(known)
  local digits, due = string.match(known, '^(%x+)@?(%d*)$')
  return digits, tonumber(due) or 0
end

local function find_topic(name)
  local known = call('HGET', P .. 'topics', name)
  return known and load(string.match(known, '^%x+')) or nil
end

-- The first slot of a calendar; nil when it has none.
local function first_slot(topic, kind)
  local first = topic.f['s' .. kind]
  if first > 0 then return first - 1 end
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

-- Changed counters are written at the end of the script.

local function set(topic, field, value)
  topic.f[field] = value
  topic.changed[field] = true
end

local made = {} -- topics by name

-- A new topic is written by close_topics.
local function make_topic(name)
  local topic = made[name] or find_topic(name)
  if not topic then
    local digits = format('%x', call('HINCRBY', META, 'topic', 1))
    topic = topic_of(digits)
    topic.name, topic.new = name, true
    topics[digits] = topic
    set(topic, 'next', NEVER)
  end
  made[name] = topic
  return topic
end

local function add(topic, field, by) set(topic, field, topic.f[field] + by) end

local function set_first(topic, kind, slot)
  set(topic, 's' .. kind, slot and slot + 1 or 0)
  topic.calendars[level_of(kind)] = nil
end

local function use_level(topic, level)
  if topic.f['l' .. level] == 0 then set(topic, 'l' .. level, 1) end
end

local drop -- removes an empty topic; in scripts that end messages

local function close_topics()
  local agenda = {}
  for _, topic in pairs(topics) do
    if topic then
      if topic.rewritten then topic.write_buckets(topic) end
      if drop and topic.f.live == 0 and topic.f.paused == 0 and topic.f.dropped == 0 then
        drop(topic)
      else
        local values = topic.new and {'name', topic.name} or {}
        for field in pairs(topic.changed) do
          values[#values + 1] = field
          values[#values + 1] = format('%d', topic.f[field])
        end
        if #values > 0 then call('HSET', topic.prefix .. 'h', unpack(values)) end
        if topic.changed.next then
          agenda[#agenda + 1], agenda[#agenda + 2] = topic.name, format('%s@%d', topic.digits, topic.f.next)
        end
      end
    end
  end
  for i = 1, #agenda, 1000 do call('HSET', P .. 'topics', unpack(agenda, i, math.min(i + 999, #agenda))) end
end

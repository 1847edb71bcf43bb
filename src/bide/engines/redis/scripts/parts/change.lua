-- What changes of a topic: its counters, which are written at the end, and when somebody is woken for it.

local function set(topic, field, value)
  topic.f[field] = value
  topic.changed[field] = true
end

local make_topic
do
  local made = {} -- by name: topics that were asked for

  -- A new one is written when the topics are closed.
  function make_topic(name)
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
end

local function add(topic, field, by) set(topic, field, topic.f[field] + by) end

local function set_first(topic, kind, slot)
  set(topic, 's' .. kind, slot and slot + 1 or 0)
  topic.calendars[level_of(kind)] = nil
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
  local agenda = {}
  for _, topic in pairs(topics) do
    if topic then
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

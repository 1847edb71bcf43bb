-- Dead letters and topics.

-- include: begin layout topics wake keys holding expiries finish

-- All that a script is told from here on: of each message its topic's number, id, salt.
local function take_ids()
  local named = {}
  while NEXT < #ARGV do
    named[#named + 1] = {digits = take_text(), id = take_text(), salt = take_text()}
    if #named[#named].id ~= ID then error('BADARG id', 0) end
  end
  return named
end

-- Those that are dead letters of a topic, each once.
local function dead_of(topic, named)
  local found, seen = {}, {}
  for _, each in ipairs(named) do
    local value = each.digits == topic.digits and not seen[each.id] and read(topic, each.id)
    if value and sub(value, 1, 2) == each.salt and call('ZSCORE', topic.prefix .. 'dead', each.id) then
      seen[each.id] = true
      found[#found + 1] = each.id
    end
  end
  return found
end

-- script: requeue
-- Give dead messages a new life. After what every script is told: topic, delay in ms, the ms over which due times are spread,
-- among how many places, the first of them that is free, the longest delay, how many at most, whether ids are named, then of
-- each: its topic's number, id, salt. Gives: now, how many, whether there are more, and how many of them lost their key: to a
-- newer message, or because the shard only empties itself.

-- include: pending

local keyless, emptying = 0, retiring()

local function revive(topic, id, value, due)
  local life = life_of(topic, id)
  call('ZREM', topic.prefix .. 'dead', id)
  if not value then return finish(topic, id, nil, life) end
  local known = content(id, value)
  if known.key and not has(life.marks, KEYLESS) then
    if emptying or pending_holder(topic, known.key) then -- the newer message may be in another shard
      life.marks = life.marks + KEYLESS
      keyless = keyless + 1
    else
      holding.hold_all(topic, {known.key, id})
    end
  end
  set_due(life, due, false)
  life.since, life.attempt, life.error = due, 0, ''
  forget_began(life)
  save_life(topic, id, life)
  schedule(topic, id, life)
  if known.expires then expiries.note_of(topic, id, due + known.expires) end
end

local again = before()
if again then return again end
local name, delay, over, places, place = take_text(), take_number(), take_number(), take_number(), take_number()
local longest, limit, by_name = take_number(), take_number(), take_number() == 1
if limit > 1000 then error('BADARG limit', 0) end
local function due_at(after) return due_of(format('%d', delay + after), longest, now, ceiling, wall) end
due_at(over)
local named = take_ids()
local topic, ids = find_topic(name), {}
if topic and by_name then
  ids = dead_of(topic, named)
elseif topic then
  ids = call('ZRANGE', topic.prefix .. 'dead', 0, limit)
end
begin_growing()
local count = math.min(#ids, limit)
for i = 1, count do revive(topic, ids[i], read(topic, ids[i]), due_at(floor((place + i - 1) * over / places))) end
if topic then close_topics() end
return answer({format('%d', now), count, #ids > limit and 1 or 0, keyless})

-- script: purge_dead
-- Drop dead messages by their ids. After what every script is told: topic, how many at most, then of each: its topic's number,
-- id, salt. Gives: now, how many were dropped, and whether there are more.

local again = before()
if again then return again end
local name, limit = take_text(), take_number()
if limit > 1000 then error('BADARG limit', 0) end
local named = take_ids()
begin_shrinking()
local topic = find_topic(name)
local ids = topic and dead_of(topic, named) or {}
local count = math.min(#ids, limit)
for i = 1, count do
  call('ZREM', topic.prefix .. 'dead', ids[i])
  finish(topic, ids[i], read(topic, ids[i]), life_of(topic, ids[i]))
end
if topic then close_topics() end
return answer({format('%d', now), count, #ids > limit and 1 or 0})

-- script: pause
-- Stop handing out a topic's messages, or go on. After what every script is told: topic, 1 or 0. Gives: now.

local again = before()
if again then return again end
local name, paused = take_text(), take_number()
call('HDEL', META, '-') -- a write that a full server allows, so that it allows those that follow: they take little room
if paused == 1 then begin_growing() else store_time() end
local topic = paused == 1 and make_topic(name) or find_topic(name)
if topic then
  set(topic, 'paused', paused)
  if paused == 1 then set(topic, 'next', NEVER) else wake(topic, 0) end
  close_topics()
end
return answer({format('%d', now)})

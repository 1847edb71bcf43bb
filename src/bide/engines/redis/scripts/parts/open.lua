-- Messages leave slots and rows: for the zset while their slot is not over, for a claim when it is.

local spent, bytes = 0, 0 -- the bounds of one script: buckets read, weighted by what was found; bytes handed out
local ENOUGH, FULL = 100, 1048576
local HEAVY = 16 -- messages that count as one bucket read
local LIGHT = 5 -- nearly empty buckets that count as one bucket read
local function exhausted() return spent >= ENOUGH or bytes >= FULL end

-- Ids and values of the messages of a bucket, from a number on, whose time is still that of their slot.
local function look_into(topic, kind, slot, n)
  local all = call('LRANGE', bucket_of(topic, kind, slot, n), n % BUCKET, -1)
  local head, low = sub(id_of(kind, slot, n), 1, ID - 1), n % 256 - 1
  local ids, values, count = {}, {}, 0
  for i = 1, #all do
    if all[i] ~= '' then
      count = count + 1
      ids[count], values[count] = head .. char(low + i), all[i]
    end
  end
  spent = spent + 1 / LIGHT + #all / BUCKET + count / HEAVY
  if count == 0 or not has_life(topic) then return ids, values end
  local lives, kept_ids, kept = call('HMGET', topic.prefix .. 'life', unpack(ids)), {}, {}
  for i = 1, count do
    if not lives[i] then kept_ids[#kept_ids + 1], kept[#kept + 1] = ids[i], values[i] end
  end
  return kept_ids, kept
end

-- Enter the first slot of a calendar, if it has begun; nil when there is none.
local function enter(topic, kind)
  local slot = first_slot(topic, kind)
  local length = SLOT[sort_of(kind)]
  if not slot or slot * length > now then return nil end
  if topic.entered[kind] then return topic.entered[kind] end
  local name = slot_name(kind, slot)
  local births = tonumber(call('HGET', topic.prefix .. 'slots', name))
  if topic.f['c' .. kind] ~= slot then
    set(topic, 'c' .. kind, slot)
    set(topic, 'p' .. kind, 0)
    set(topic, 'd' .. kind, births)
  end
  local start = slot * length
  local at = {kind = kind, slot = slot, name = name, start = start, over = start + length - 1 <= now, births = births}
  topic.entered[kind] = at
  return at
end

-- Remove a slot that is used up; the next slot of its calendar is the first then.
local function leave(topic, at)
  local kind, key = at.kind, topic.prefix .. 'o' .. at.kind
  call('HDEL', topic.prefix .. 'slots', at.name, 'g' .. at.name)
  call('ZREM', key, at.name)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  set_first(topic, kind, tonumber(first))
  topic.entered[kind] = nil
  local short = at.births % BUCKET -- entries that were never filled count as ended
  if short > 0 then
    local bucket = bucket_of(topic, kind, at.slot, at.births - 1)
    if call('LLEN', bucket) > 0 then end_entries(topic, bucket, BUCKET - short) end
  end
end

-- Move the cursor of a slot by so many numbers, of which so many were pending; false when the slot is used up.
local function pass(topic, at, numbers, pending)
  local kind = at.kind
  set(topic, 'p' .. kind, topic.f['p' .. kind] + numbers)
  add(topic, 'far', -pending)
  if topic.f['p' .. kind] < at.births then
    if numbers > pending then call('HINCRBY', topic.prefix .. 'slots', 'g' .. at.name, pending - numbers) end
    return true
  end
  leave(topic, at)
  return false
end

-- Ids and values of the next bucket of a slot, and how many numbers it has from the cursor on.
local function next_bucket(topic, at)
  local n = topic.f['p' .. at.kind]
  local ids, values = look_into(topic, at.kind, at.slot, n)
  return ids, values, math.min(BUCKET - n % BUCKET, at.births - n)
end

local WAITING = 4096 -- due entries: while so many wait, no slot is opened

-- Move the messages of a slot that is not over into the zset.
local function open(topic, level, at)
  local key = topic.prefix .. 'due' .. level
  if call('ZCARD', key) >= WAITING and call('ZCOUNT', key, '-inf', now) >= WAITING then return end
  repeat
    if exhausted() then return end
    local ids, values, numbers = next_bucket(topic, at)
    local scores, sort = {}, sort_of(at.kind)
    for i = 1, #ids do
      scores[2 * i - 1], scores[2 * i] = due_from(at.start, sort, values[i]), ids[i]
    end
    if #scores > 0 then
      call('ZADD', key, unpack(scores))
      topic.entered[kind_of(level, NEAR)] = nil
    end
  until not pass(topic, at, numbers, #ids)
end

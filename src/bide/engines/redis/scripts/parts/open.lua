-- Taking messages out of slots and rows: into the zset while their slot is not over, straight to a claim when it is.

local spent, bytes = 0, 0 -- of what one script may do: looks into buckets, with what was found; bytes handed out
local ENOUGH, FULL = 100, 1048576
local HEAVY = 16 -- messages found that count as much as a look
local function exhausted() return spent >= ENOUGH or bytes >= FULL end

-- What is left of a bucket from a number on: ids and values of those that are there and whose time is not elsewhere.
local function look_into(topic, kind, slot, n)
  local all = call('LRANGE', bucket_of(topic, kind, slot, n), n % BUCKET, -1)
  local head, low = sub(pack('>c1I4I4', kind, slot, n), 1, 8), n % 256 - 1
  local ids, values, count = {}, {}, 0
  for i = 1, #all do
    if all[i] ~= '' then
      count = count + 1
      ids[count], values[count] = head .. char(low + i), all[i]
    end
  end
  spent = spent + 1 + count / HEAVY
  if count == 0 or not has_life(topic) then return ids, values end
  local lives, kept_ids, kept = call('HMGET', topic.prefix .. 'life', unpack(ids)), {}, {}
  for i = 1, count do
    if not lives[i] then kept_ids[#kept_ids + 1], kept[#kept + 1] = ids[i], values[i] end
  end
  return kept_ids, kept
end

-- Whether there are slots or a row to look at: also slots of which all is gone are to be passed.
local function may_be_far(topic)
  return topic.f.far > 0 or call('HLEN', topic.prefix .. 'slots') > 0
end

-- The place of a calendar to go on from: its first slot that has begun, entered; nil when there is none.
local function enter(topic, kind)
  local name = call('ZRANGE', topic.prefix .. 'o' .. kind, 0, 0)[1]
  if not name then return nil end
  local slot = tonumber(sub(name, 2), 16)
  local start = slot * SLOT[sort_of(kind)]
  if start > now then return nil end
  if topic.f['c' .. kind] ~= slot then
    set(topic, 'c' .. kind, slot)
    set(topic, 'p' .. kind, 0)
  end
  local counts = call('HMGET', topic.prefix .. 'slots', name, 'g' .. name)
  return {kind = kind, slot = slot, name = name, start = start, over = start + SLOT[sort_of(kind)] <= now,
          births = tonumber(counts[1]), gone = tonumber(counts[2] or 0)}
end

-- Go on after so many numbers of the slot, of which so many were pending.
local function pass(topic, at, numbers, pending)
  local kind = at.kind
  set(topic, 'p' .. kind, topic.f['p' .. kind] + numbers)
  add(topic, 'far', -pending)
  at.gone = at.gone - (numbers - pending)
  if topic.f['p' .. kind] < at.births then
    if numbers > pending then call('HSET', topic.prefix .. 'slots', 'g' .. at.name, at.gone) end
    return true
  end
  call('HDEL', topic.prefix .. 'slots', at.name, 'g' .. at.name, 'x' .. at.name)
  call('ZREM', topic.prefix .. 'o' .. kind, at.name)
  local short = at.births % BUCKET -- places that nobody will take count as ended
  if short > 0 then
    local bucket = bucket_of(topic, kind, at.slot, at.births - 1)
    if call('LLEN', bucket) > 0 then end_places(topic, bucket, BUCKET - short) end
  end
  return false
end

-- The next bucket of a slot: what is pending there, and how many numbers it takes up from the cursor on.
local function next_bucket(topic, at)
  local n = topic.f['p' .. at.kind]
  local ids, values = look_into(topic, at.kind, at.slot, n)
  return ids, values, math.min(BUCKET - n % BUCKET, at.births - n)
end

local WAITING = 4096 -- entries that are due: while so many wait, no more are put beside them

-- Put what a slot holds that is not over into the zset.
local function open(topic, level, at)
  local key = topic.prefix .. 'due' .. level
  if call('ZCARD', key) >= WAITING and call('ZCOUNT', key, '-inf', now) >= WAITING then return end
  repeat
    if exhausted() then return end
    local ids, values, numbers = next_bucket(topic, at)
    local scores, form = {}, FORM[SORT_OF[at.kind]]
    for i = 1, #ids do
      scores[2 * i - 1], scores[2 * i] = at.start + unpack_(form, values[i], 3), ids[i]
    end
    if #scores > 0 then call('ZADD', key, unpack(scores)) end
  until not pass(topic, at, numbers, #ids)
end

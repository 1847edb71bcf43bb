-- Messages leave slots and rows, and are taken.

-- part: open
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

-- part: take
-- Taking what is due, the oldest first: from the zset, from the head of the ready row, from slots that are over.

-- What is taken: topics, ids, values, lives, flags, large bodies, each by position.
local T = {topics = {}, ids = {}, values = {}, lives = {}, flags = {}, large = {}, count = 0}

local function add_taken(topic, id, value, life, flags)
  local position = T.count + 1
  T.count, T.topics[position], T.ids[position], T.values[position], T.lives[position], T.flags[position] = position, topic, id, value, life, flags
  bytes = bytes + #value
  if has(flags, FLAG.large) then
    T.large[position] = call('GET', large_of(topic, id)) or ''
    bytes = bytes + #T.large[position]
  end
end

local held_back = {} -- times and ids by turns: instants that the clock has not reached

local function hand_out(topic, id, value, life)
  local flags = flags_of(id, value)
  if has(flags, FLAG.expires) and expiry_of(id, value, life) <= now then
    finish(topic, id, value, life)
    return 0
  end
  if wall < now and is_instant(id, value, life) then
    local due = life and life.due or born_due(id, value)
    if due > wall then
      held_back[#held_back + 1], held_back[#held_back + 2] = look_again_at(due), id
      return 0
    end
  end
  add_taken(topic, id, value, life, flags)
  return 1
end

local SEVERAL = 3 -- buckets of which little is read that count as much as a look into a whole one

-- The values of these ids; what several share a bucket is read at once. Ids are left out where they lie in too many buckets.
local function read_all(topic, ids)
  local values, groups, heads = {}, {}, {}
  for i = 1, #ids do
    local low = byte(ids[i], ID)
    local head = sub(ids[i], 1, ID - 1) .. floor(low / BUCKET)
    local group = groups[head]
    if not group then
      if #heads == ENOUGH * SEVERAL then
        for last = #ids, i, -1 do ids[last] = nil end
        break
      end
      group = {low = BUCKET, high = 0}
      groups[head], heads[#heads + 1] = group, head
    end
    low = low % BUCKET
    group[#group + 1], group.low, group.high = i, math.min(group.low, low), math.max(group.high, low)
  end
  spent = spent + #heads / SEVERAL
  for _, head in ipairs(heads) do
    local group = groups[head]
    local bucket = bucket_of(topic, location(ids[group[1]]))
    if #group * 4 > group.high - group.low then
      local found = call('LRANGE', bucket, group.low, group.high)
      for _, i in ipairs(group) do values[i] = found[byte(ids[i], ID) % BUCKET - group.low + 1] end
    else
      for _, i in ipairs(group) do values[i] = call('LINDEX', bucket, byte(ids[i], ID) % BUCKET) end
    end
  end
  return values
end

-- When the first of what is near is due. That, and what was read and not taken, is kept while nothing is put beside it.
local function first_near(topic, level)
  local kind = kind_of(level, NEAR)
  local near = topic.entered[kind]
  if not near then
    local score = call('ZRANGE', topic.prefix .. 'due' .. level, 0, 0, 'WITHSCORES')[2]
    near = {due = score and tonumber(score) or math.huge}
    topic.entered[kind] = near
  end
  return near.due
end

local function read_near(topic, level, near, many, bound)
  local found, ids, dues = call('ZRANGEBYSCORE', topic.prefix .. 'due' .. level, '-inf', format('%d', bound), 'WITHSCORES', 'LIMIT', 0, many), {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  near.values = read_all(topic, ids)
  for i = 1, #ids do dues[i] = tonumber(found[2 * i]) end
  near.ids, near.dues, near.at = ids, dues, 1
  near.lives = has_life(topic) and call('HMGET', topic.prefix .. 'life', unpack(ids)) or {}
end

local function take_near(topic, level, limit, bound, wide)
  local near = topic.entered[kind_of(level, NEAR)]
  if not near.ids then read_near(topic, level, near, math.max(limit, wide), bound) end
  local ids, first, at, count = near.ids, near.at, near.at, 0
  while ids[at] and near.dues[at] <= bound and count < limit and bytes < FULL do
    local value = near.values[at]
    if value and value ~= '' then count = count + hand_out(topic, ids[at], value, life_from(near.lives[at])) end
    at = at + 1
  end
  call('ZREM', topic.prefix .. 'due' .. level, unpack(ids, first, at - 1))
  spent = spent + (at - first) / HEAVY -- many may have expired
  near.at, near.due = at, near.dues[at]
  if not near.due then topic.entered[kind_of(level, NEAR)] = nil end
  return count
end

-- Hand out from the front of what a bucket holds, from the number `n` of its slot on, which has so many numbers more;
-- gives how many were handed out, how many numbers were passed, and how many pending messages.
local function take_front(topic, n, ids, values, numbers, limit, bound)
  local count = 0
  for i = 1, #ids do
    if count >= limit or bytes >= FULL or (bound and born_due(ids[i], values[i]) > bound) then
      return count, select(3, location(ids[i])) - n, i - 1
    end
    count = count + hand_out(topic, ids[i], values[i], nil)
  end
  return count, numbers, #ids
end

local function take_over(topic, at, limit)
  local n = topic.f['p' .. at.kind]
  local ids, values, numbers = next_bucket(topic, at)
  local count, passed, pending = take_front(topic, n, ids, values, numbers, limit)
  pass(topic, at, passed, pending)
  return count
end

-- The head of the ready row: what its bucket holds, and the due time of the first. It is read once, and kept with what was
-- not taken of it.
local function ready_head(topic, level)
  local kind = kind_of(level, READY)
  if topic.entered[kind] then return topic.entered[kind] end
  while topic.f['b' .. kind] - topic.f['p' .. kind] > topic.f['g' .. kind] do
    if exhausted() then return {due = now} end -- nobody takes from it
    local first, births = topic.f['p' .. kind], topic.f['b' .. kind]
    local numbers = math.min(BUCKET - first % BUCKET, births - first)
    local ids, values = look_into(topic, kind, floor(first / ROW), first % ROW)
    if #ids > 0 then
      local head = {kind = kind, ids = ids, values = values, numbers = numbers, first = first, due = born_due(ids[1], values[1])}
      topic.entered[kind] = head
      return head
    end
    set(topic, 'p' .. kind, first + numbers)
    add(topic, 'g' .. kind, -numbers)
  end
end

local function take_ready(topic, head, limit, bound)
  local ids, values = head.ids, head.values
  local count, passed, pending = take_front(topic, head.first % ROW, ids, values, head.numbers, limit, bound)
  if pending < #ids then
    head.first, head.numbers, head.ids, head.values = head.first + passed, head.numbers - passed, {}, {}
    for i = pending + 1, #ids do head.ids[i - pending], head.values[i - pending] = ids[i], values[i] end
    head.due = born_due(head.ids[1], head.values[1])
  else
    topic.entered[head.kind] = nil
  end
  set(topic, 'p' .. head.kind, topic.f['p' .. head.kind] + passed)
  add(topic, 'g' .. head.kind, pending - passed)
  add(topic, 'far', -pending)
  return count
end

-- Open what has begun, and give the oldest slot that is over.
local function begun(topic, level)
  local oldest
  for _, kind in ipairs(calendars_of(topic, level)) do
    local at = enter(topic, kind)
    if at and not at.over then
      open(topic, level, at)
    elseif at and (not oldest or at.start < oldest.start) then
      oldest = at
    end
  end
  return oldest
end

local function put_back(topic, level)
  if #held_back == 0 then return end
  for i = 1, #held_back, 1000 do
    call('ZADD', topic.prefix .. 'due' .. level, unpack(held_back, i, math.min(i + 999, #held_back)))
  end
  held_back, topic.entered[kind_of(level, NEAR)] = {}, nil
end

-- Take up to so many of one level, and read `wide` of what is near at once, if that is more; gives how many, and the
-- earliest that is left (math.huge: nothing is).
local function take(topic, level, limit, wide)
  local count, near, head, over = 0, nil, nil, nil
  while true do
    over, head = begun(topic, level), ready_head(topic, level)
    near = first_near(topic, level)
    local ready_at, over_at = head and head.due or math.huge, over and over.start or math.huge
    local oldest = math.min(near, ready_at, over_at)
    if oldest > now or count >= limit or exhausted() then return count, oldest end
    if near == oldest then
      local got = take_near(topic, level, limit - count, math.min(now, ready_at, over_at), wide)
      if got == 0 then wide = BUCKET end -- they had expired: there may be many more
      count = count + got
    elseif ready_at == oldest then
      count = count + take_ready(topic, head, limit - count, math.min(now, near, over_at))
    else
      count = count + take_over(topic, over, limit - count)
    end
    put_back(topic, level)
  end
end

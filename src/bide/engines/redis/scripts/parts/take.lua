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

-- Taking what is due, the oldest first: from the zset, from the head of the ready row, from slots that are over.

local taken = {} -- {topic, id, value, life}

local function hand_out(topic, id, value, life)
  local expires = expiry_of(id, value, life)
  if expires and expires <= now then
    finish(topic, id, value, life)
    return 0
  end
  taken[#taken + 1] = {topic, id, value, life}
  bytes = bytes + #value
  return 1
end

local function take_near(topic, level, limit, bound)
  local key = topic.prefix .. 'due' .. level
  local ids = call('ZRANGEBYSCORE', key, '-inf', bound, 'LIMIT', 0, limit)
  if #ids == 0 then return 0, 0 end
  local count, used = 0, 0
  for _, id in ipairs(ids) do
    if bytes >= FULL then break end
    used = used + 1
    local value = read(topic, id)
    if value then count = count + hand_out(topic, id, value, life_of(topic, id)) end
  end
  call('ZREM', key, unpack(ids, 1, used))
  return count, used
end

-- Hand out from the front of what a bucket holds; gives how many were handed out, and how many numbers are passed.
local function take_front(topic, first, found, numbers, limit, bound)
  local count, passed, pending = 0, 0, 0
  for _, entry in ipairs(found) do
    local id, value = entry[1], entry[2]
    if count >= limit or bytes >= FULL or (bound and born_due(id, value) > bound) then return count, passed, pending end
    count = count + hand_out(topic, id, value, nil)
    passed, pending = select(3, unpack_('>c1I4I4', id)) - first + 1, pending + 1
  end
  return count, numbers, pending
end

local function take_over(topic, at, limit)
  local first = topic.f['p' .. at.kind]
  local found, numbers = next_bucket(topic, at)
  local count, passed, pending = take_front(topic, first, found, numbers, limit)
  pass(topic, at, passed, pending)
  return count
end

-- The head of the ready row: what its bucket holds, and the due time of the first.
local function ready_head(topic, level)
  local kind = kind_of(level, READY)
  while topic.f['b' .. kind] - topic.f['p' .. kind] > topic.f['g' .. kind] do
    if exhausted() then return {due = now} end -- nobody takes from it
    local first, births = topic.f['p' .. kind], topic.f['b' .. kind]
    local numbers = math.min(BUCKET - first % BUCKET, births - first)
    local found = look_into(topic, kind, floor(first / ROW), first % ROW)
    if #found > 0 then
      return {kind = kind, found = found, numbers = numbers, first = first, due = born_due(found[1][1], found[1][2])}
    end
    set(topic, 'p' .. kind, first + numbers)
    add(topic, 'g' .. kind, -numbers)
  end
end

local function take_ready(topic, head, limit, bound)
  local count, passed, pending = take_front(topic, head.first % ROW, head.found, head.numbers, limit, bound)
  set(topic, 'p' .. head.kind, head.first + passed)
  add(topic, 'g' .. head.kind, pending - passed)
  add(topic, 'far', -pending)
  return count
end

-- Open what has begun, and give the oldest slot that is over.
local function begun(topic, level)
  local oldest
  for sort = COARSE, FINE do
    local at = enter(topic, kind_of(level, sort))
    while at and not at.over do
      open(topic, level, at)
      at = nil
    end
    if at and (not oldest or at.start < oldest.start) then oldest = at end
  end
  return oldest
end

local function first_near(topic, level)
  local score = call('ZRANGE', topic.prefix .. 'due' .. level, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score) or math.huge
end

-- Take up to so many of one level; gives how many, and the earliest that is left (math.huge: nothing is).
local function take(topic, level, limit)
  local count, near, head, over = 0, nil, nil, nil
  while true do
    over = begun(topic, level)
    head = ready_head(topic, level)
    near = first_near(topic, level)
    local ready_at, over_at = head and head.due or math.huge, over and over.start or math.huge
    local oldest = math.min(near, ready_at, over_at)
    if oldest > now or count >= limit or exhausted() then return count, oldest end
    if near == oldest then
      count = count + take_near(topic, level, limit - count, format('%.0f', math.min(now, ready_at, over_at)))
    elseif ready_at == oldest then
      count = count + take_ready(topic, head, limit - count, math.min(now, near, over_at))
    else
      count = count + take_over(topic, over, limit - count)
    end
  end
end

-- Messages end, or are pending again.

-- part: finish
-- How a message ends, or is pending again. The last one of a topic ends the topic.

-- Count ended entries of a bucket, and remove it with the last; gives whether it was removed.
local function end_entries(topic, bucket, count)
  local ended = call('HINCRBY', topic.prefix .. 'ended', bucket, count)
  if ended >= BUCKET then
    call('UNLINK', bucket)
    call('HDEL', topic.prefix .. 'ended', bucket)
    return true
  end
end

-- End a message that is in no zset and under no lease.
local function finish(topic, id, value, life)
  if life then
    call('HDEL', topic.prefix .. 'life', id, id .. 'b') -- both, whatever its marks say
    if has(life.marks, 2) then call('UNLINK', large_of(topic, id) .. ':t') end
  end
  if not value then return add(topic, 'live', -1) end -- it was deleted by hand
  local known = content(id, value)
  if known.key and not (life and has(life.marks, KEYLESS)) then holding.free(topic, known.key, id) end
  if known.expires then expiries.forget(full_of(topic, id)) end
  if has(known.flags, FLAG.large) then call('UNLINK', large_of(topic, id)) end
  local kind, slot, n = location(id)
  local bucket = bucket_of(topic, kind, slot, n)
  if not end_entries(topic, bucket, 1) then call('LSET', bucket, n % BUCKET, '') end
  add(topic, 'live', -1)
end

-- End plain messages, bucket by bucket. The bytes of an id but the last, and the last one's upper two bits, name its bucket.
local function end_simple(topic, ids)
  local heads, groups, group, last, from = {}, {}, nil, nil, 0
  for i = 1, #ids do
    local id = ids[i]
    local begins, low = sub(id, 1, ID - 1), byte(id, ID)
    if begins ~= last or low < from or low >= from + BUCKET then -- most are of the same bucket as the one before
      last, from = begins, low - low % BUCKET
      local head = begins .. from
      group = groups[head]
      if not group then
        group = {id = id, count = 0}
        groups[head], heads[#heads + 1] = group, head
      end
    end
    group.count = group.count + 1
    group[group.count] = low - from
  end
  for _, head in ipairs(heads) do
    local group = groups[head]
    local bucket = bucket_of(topic, location(group.id))
    if group.count == BUCKET then
      call('UNLINK', bucket)
    elseif call('LLEN', bucket) > 0 and not end_entries(topic, bucket, group.count) then
      for i = 1, group.count do call('LSET', bucket, group[i], '') end
    end
  end
  add(topic, 'live', -#ids)
end

-- A message whose time, level or attempt has changed since it was sent has a life.

local function new_life(id, value)
  local due = born_due(id, value)
  return {due = due, since = due, attempt = 0, level = level_of(id), marks = has(flags_of(id, value), FLAG.instant) and BY_CLOCK or 0, error = ''}
end

local function save_life(topic, id, life)
  call('HSET', topic.prefix .. 'life', id, life_text(life))
  topic.lives = true
end

-- The same, and when its first attempt began.
local function save_begun(topic, id, life, began)
  if not has(life.marks, 4) then life.marks = life.marks + 4 end
  call('HSET', topic.prefix .. 'life', id, life_text(life), id .. 'b', pack('>I6I6', life.since, began))
  topic.lives = true
end

local function forget_began(life)
  if has(life.marks, 4) then life.marks = life.marks - 4 end
end

-- Put a message's time into the zset of its level.
local function schedule(topic, id, life)
  local key = topic.prefix .. 'due' .. life.level
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  call('ZADD', key, life.due, id)
  use_level(topic, life.level)
  if life.due <= now or not first or life.due < tonumber(first) then wake(topic, life.due) end
end

-- After a failed delivery the message is pending again, dead, or expired.

local function give_attempt(id, value, life)
  life = life or new_life(id, value)
  life.attempt = life.attempt + 1
  return life
end

-- Keep the record of an attempt, with those before it; its life is saved afterwards. A release that knows of no records leaves
-- them behind when it ends a message: so they don't last for ever.
local function keep_trace(topic, id, life, record)
  local key, kept, starts, at = large_of(topic, id) .. ':t', '', {}, 1
  if has(life.marks, 2) then kept = call('GET', key) or '' else life.marks = life.marks + 2 end
  kept = kept .. pack('>I2', #record) .. record
  while at <= #kept do
    starts[#starts + 1] = at
    at = at + 2 + unpack_('>I2', kept, at)
  end
  local first = math.max(1, #starts - 9)
  while first < #starts and #kept + 1 - starts[first] - 2 * (#starts + 1 - first) > 16384 do first = first + 1 end
  call('SET', key, sub(kept, starts[first]), 'PX', '34560000000') -- 400 days
end

-- Make a message pending again, with or without a life; false when it has expired by then, and so ended. When its first
-- attempt began may be told; else what is known of that stays.
local function come_back(topic, id, value, life, due, began)
  local expires = expiry_of(id, value, life)
  if expires then
    if math.max(due, now) >= expires then
      finish(topic, id, value, life)
      return false
    end
    expiries.note_of(topic, id, expires)
  end
  if life then
    set_due(life, due, due == life.due and has(life.marks, BY_CLOCK)) -- another time is a delay
    if began then save_begun(topic, id, life, began) else save_life(topic, id, life) end
  end
  schedule(topic, id, life or {due = due, level = level_of(sub(id, 1, 1))})
  return true
end

local drops = 0 -- dead letters that this script has dropped
local TO_DROP = '0' -- a time in `graves`: the topic has too many dead letters, whatever their age

-- Gives how many were dropped.
local function drop_oldest_dead(topic, count)
  count = math.min(count, 100 - drops) -- one script drops no more; tend drops the rest
  if count <= 0 then return 0 end
  local ids = call('ZRANGE', topic.prefix .. 'dead', 0, count - 1)
  for _, id in ipairs(ids) do
    call('ZREM', topic.prefix .. 'dead', id)
    finish(topic, id, read(topic, id), life_of(topic, id))
  end
  add(topic, 'dropped', #ids)
  set(topic, 'last', now)
  drops = drops + #ids
  return #ids
end

local function bury(topic, id, value, life, reason, most)
  local known = content(id, value)
  if known.key and not has(life.marks, KEYLESS) then holding.free(topic, known.key, id) end
  if known.expires then expiries.forget(full_of(topic, id)) end
  life.error = reason
  save_life(topic, id, life)
  call('ZADD', topic.prefix .. 'dead', now, id)
  if call('ZADD', P .. 'graves', 'NX', now, topic.digits) == 1 then need_upkeep(now) end -- tend knows how long they are kept
  local over = call('ZCARD', topic.prefix .. 'dead') - most
  if over > 0 and drop_oldest_dead(topic, over) < over then
    call('ZADD', P .. 'graves', TO_DROP, topic.digits)
    need_upkeep(now)
  end
end

-- An empty topic is removed with all its keys. Of a slot only the last bucket can be left. If there are very many slots, they
-- are freed later, a part at a time.


local function last_buckets(prefix, names, births)
  local found = {}
  for i = 1, #names do
    if births[i] then found[#found + 1] = prefix .. 'b' .. names[i] .. format(':%x', floor((births[i] - 1) / BUCKET)) end
  end
  return found
end

drop = function(topic)
  local doomed, slots = {'h', 'life', 'dead', 'ended'}, topic.prefix .. 'slots'
  for i, name in ipairs(doomed) do doomed[i] = topic.prefix .. name end
  doomed[#doomed + 1] = P .. 'w:' .. topic.name
  if topic.f.keys > 0 then -- of messages that were deleted by hand
    doomed[#doomed + 1] = topic.prefix .. 'crowd'
    for group = 0, floor((topic.f.index - 1) / index.GROUP) do doomed[#doomed + 1] = topic.prefix .. format('k%x', group) end
  end
  for level = 0, 2 do
    doomed[#doomed + 1] = topic.prefix .. 'due' .. level
    for _, sort in ipairs({NEAR, READY}) do
      local births = topic.f['b' .. kind_of(level, sort)]
      if births > 0 then doomed[#doomed + 1] = bucket_of(topic, kind_of(level, sort), floor((births - 1) / ROW), (births - 1) % ROW) end
    end
  end
  local FREED = 1000 -- slots whose buckets go at once
  if call('HLEN', slots) > FREED then
    call('ZADD', P .. 'retired', format('%d', now), topic.digits)
    need_upkeep(now)
  else
    local flat, names, births = call('HGETALL', slots), {}, {}
    for i = 1, #flat, 2 do
      if is_kind(flat[i]) then -- fields that begin with g count what is gone
        names[#names + 1], births[#births + 1] = flat[i], flat[i + 1]
      end
    end
    for _, bucket in ipairs(last_buckets(topic.prefix, names, births)) do doomed[#doomed + 1] = bucket end
    for level = 0, 2 do
      for sort = COARSE, FINEST do doomed[#doomed + 1] = topic.prefix .. 'o' .. kind_of(level, sort) end
    end
    doomed[#doomed + 1] = slots
  end
  for i = 1, #doomed, 1000 do call('UNLINK', unpack(doomed, i, math.min(i + 999, #doomed))) end
  call('HDEL', P .. 'topics', topic.name)
  call('ZREM', P .. 'graves', topic.digits)
  call('HDEL', P .. 'timers', topic.name)
  if topic.f.expires > 0 and call('HLEN', P .. 'topics') == 0 then expiries.note_all_parts() end -- nothing is left there
  topics[topic.digits] = false
end

-- Removed topics whose slots are not all freed.

-- Free some slots of a removed topic; true when none is left.
local function free_slots(prefix)
  for level = 0, 2 do
    for sort = COARSE, FINEST do
      local key = prefix .. 'o' .. kind_of(level, sort)
      local names = call('ZRANGE', key, 0, 999)
      if #names > 0 then
        local doomed = last_buckets(prefix, names, call('HMGET', prefix .. 'slots', unpack(names)))
        if #doomed > 0 then call('UNLINK', unpack(doomed)) end
        call('ZREM', key, unpack(names))
        return false
      end
    end
  end
  call('UNLINK', prefix .. 'slots')
  return true
end

-- Free some slots; gives whether there are more.
local function free_retired()
  local digits = call('ZRANGE', P .. 'retired', 0, 0)[1]
  if digits and free_slots(P .. digits .. ':') then call('ZREM', P .. 'retired', digits) end
  return call('ZCARD', P .. 'retired') > 0
end

-- part: pending
-- Pending messages that a caller names, to cancel or to move them.

local function leave_far(topic, id)
  local kind, slot = location(id)
  add(topic, 'far', -1)
  if sort_of(kind) == READY then
    add(topic, 'g' .. kind, 1)
  else
    call('HINCRBY', topic.prefix .. 'slots', 'g' .. slot_name(kind, slot), 1)
  end
end

-- Remove a pending message's time.
local function unschedule(topic, id, state, life)
  if state == 'far' then return leave_far(topic, id) end
  local level = life and life.level or level_of(id)
  call('ZREM', topic.prefix .. 'due' .. level, id)
end

-- Id, value, life and state of a message that has not ended; an expired one ends now. Its value may be known.
local function living(topic, id, salt, value)
  value = value or read(topic, id)
  if not value or (salt and sub(value, 1, 2) ~= salt) then return nil end
  local life = life_of(topic, id)
  local state = state_of(topic, id, life)
  if state == 'far' or state == 'near' then
    local expires = expiry_of(id, value, life)
    if expires and expires <= now then
      unschedule(topic, id, state, life)
      finish(topic, id, value, life)
      return nil
    end
  end
  return id, value, life, state
end

local function pending_holder(topic, key)
  local id, value = index.holder(topic, key)
  if id then return living(topic, id, nil, value) end
end

-- How callers name a message: ('id', topic's number, id, salt) or ('key', topic, key, '').

local function take_ref()
  local ref = {how = take_text(), topic = take_text(), id = take_text(), salt = take_text()}
  if ref.how ~= 'key' and (ref.how ~= 'id' or #ref.id ~= ID or not is_kind(ref.id)) then error('BADARG id', 0) end
  return ref
end

-- Topic, id, value, life and state of a message that has not ended.
local function find(ref)
  local topic
  if ref.how == 'id' then
    topic = load(ref.topic)
    if topic then return topic, living(topic, ref.id, ref.salt) end
  else
    topic = find_topic(ref.topic)
    if topic then return topic, pending_holder(topic, ref.id) end
  end
end

-- The end of a message, which frees its key and its entry.

-- Only the holder gives a key back.
local function free_key(topic, key, id)
  if holder_of(topic, key) == id then
    call('HDEL', index_bucket(topic, key, topic.f.index), key)
    add(topic, 'keys', -1)
    topic.holders = nil
  end
end

-- Some entries of a bucket have ended: when all have, it goes.
local function end_entries(topic, bucket, count)
  local ended = call('HINCRBY', topic.prefix .. 'ended', bucket, count)
  if ended >= BUCKET then
    call('UNLINK', bucket)
    call('HDEL', topic.prefix .. 'ended', bucket)
    return true
  end
end

-- A message that is in no zset and under no lease ends.
local function finish(topic, id, value, life)
  if not value then -- somebody has deleted it by hand
    if life then call('HDEL', topic.prefix .. 'life', id) end
    return add(topic, 'live', -1)
  end
  local known = content(id, value)
  if known.key and not (life and has(life.marks, KEYLESS)) then free_key(topic, known.key, id) end
  if known.expires then call('ZREM', P .. 'exp', full_of(topic, id)) end
  if has(known.flags, LARGE) then call('UNLINK', large_of(topic, id)) end
  if life then call('HDEL', topic.prefix .. 'life', id) end
  local kind, slot, n = location(id)
  local bucket = bucket_of(topic, kind, slot, n)
  if not end_entries(topic, bucket, 1) then call('LSET', bucket, n % BUCKET, '') end
  add(topic, 'live', -1)
end

-- Plain ones end together, bucket by bucket. All bytes of an id but the last, and a quarter of that, name its bucket.
local function end_simple(topic, ids)
  local heads, groups, group, last, from = {}, {}, nil, nil, 0
  for i = 1, #ids do
    local id = ids[i]
    local begins, low = sub(id, 1, ID - 1), byte(id, ID)
    if begins ~= last or low < from or low >= from + BUCKET then -- most follow one of the same bucket
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

-- A message is pending at another time, level or attempt than it was sent with: it has a life.

local function new_life(id, value)
  local due = born_due(id, value)
  return {due = due, since = due, attempt = 0, level = level_of(id), marks = 0, error = ''}
end

local function save_life(topic, id, life)
  call('HSET', topic.prefix .. 'life', id, life_text(life))
  topic.lives = true
end

-- Put a message's time into the zset of its level.
local function schedule(topic, id, life)
  local key = topic.prefix .. 'due' .. life.level
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  call('ZADD', key, life.due, id)
  use_level(topic, life.level)
  if life.due <= now or not first or life.due < tonumber(first) then wake(topic, life.due) end
end

-- What a delivery that did not succeed leaves: a message that is due again, a dead letter, or nothing.

local function give_attempt(id, value, life)
  life = life or new_life(id, value)
  life.attempt = life.attempt + 1
  return life
end

-- Make a message pending again, with or without a life; false when that would be after its expiry, and it has ended.
local function come_back(topic, id, value, life, due)
  local expires = expiry_of(id, value, life)
  if expires then
    if math.max(due, now) >= expires then
      finish(topic, id, value, life)
      return false
    end
    call('ZADD', P .. 'exp', expires, full_of(topic, id))
  end
  if life then
    life.due = due
    save_life(topic, id, life)
  end
  schedule(topic, id, life or {due = due, level = level_of(sub(id, 1, 1))})
  return true
end

local drops = 0 -- dead letters that this script has dropped
local DROPS = 100 -- that one script drops: what is left is for tend
local TO_DROP = '0' -- among the times in `graves`: a topic that has too many, whatever their age

-- Gives how many went.
local function drop_oldest_dead(topic, count)
  count = math.min(count, DROPS - drops)
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
  if known.key and not has(life.marks, KEYLESS) then free_key(topic, known.key, id) end
  if known.expires then call('ZREM', P .. 'exp', full_of(topic, id)) end
  life.error = reason
  save_life(topic, id, life)
  call('ZADD', topic.prefix .. 'dead', now, id)
  call('ZADD', P .. 'graves', 'NX', now, topic.digits)
  local over = call('ZCARD', topic.prefix .. 'dead') - most
  if over > 0 and drop_oldest_dead(topic, over) < over then call('ZADD', P .. 'graves', TO_DROP, topic.digits) end
end

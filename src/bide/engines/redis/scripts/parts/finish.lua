-- The end of a message, which frees its key and its place.

-- Only the holder gives a key back.
local function free_key(topic, key, id)
  if holder_of(topic, key) == id then
    call('HDEL', index_bucket(topic, key, topic.f.index), key)
    add(topic, 'keys', -1)
    topic.holders = nil
  end
end

-- Some places of a bucket have ended: when all have, it goes.
local function end_places(topic, bucket, count)
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
  local kind, slot, n = home(id)
  local bucket = bucket_of(topic, kind, slot, n)
  if not end_places(topic, bucket, 1) then call('LSET', bucket, n % BUCKET, '') end
  add(topic, 'live', -1)
end

-- The index of keys: small hashes, whose number grows by one whenever they hold too much (linear hashing).

local CROWDED = 48 -- keys a bucket

-- The power of two that the buckets grew from.
local function base_of(buckets)
  local size = 1
  while size * 2 <= buckets do size = size * 2 end
  return size
end

local function index_bucket(topic, key, buckets)
  local hash, size = tonumber(sub(redis.sha1hex(key), 1, 8), 16), base_of(buckets)
  local at = hash % (size * 2)
  if at >= buckets then at = hash % size end
  return topic.prefix .. 'k' .. format('%x', at)
end

local function holder_of(topic, key)
  if topic.f.index == 0 then return nil end
  return call('HGET', index_bucket(topic, key, topic.f.index), key) or nil
end

local function split_index(topic)
  local buckets = topic.f.index
  local old = topic.prefix .. 'k' .. format('%x', buckets - base_of(buckets))
  set(topic, 'index', buckets + 1)
  local held = call('HGETALL', old)
  for i = 1, #held, 2 do
    local bucket = index_bucket(topic, held[i], buckets + 1)
    if bucket ~= old then
      call('HDEL', old, held[i])
      call('HSET', bucket, held[i], held[i + 1])
    end
  end
end

local function hold_key(topic, key, id)
  if topic.f.keys >= topic.f.index * CROWDED then
    if topic.f.index == 0 then set(topic, 'index', 1) else split_index(topic) end
  end
  if call('HSET', index_bucket(topic, key, topic.f.index), key, id) == 1 then add(topic, 'keys', 1) end
end

-- Only the holder gives a key back.
local function free_key(topic, key, id)
  if holder_of(topic, key) == id then
    call('HDEL', index_bucket(topic, key, topic.f.index), key)
    add(topic, 'keys', -1)
  end
end

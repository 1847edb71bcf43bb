-- The index of keys: small hashes, whose number grows by one whenever they hold too much (linear hashing).

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

-- `holders` is known of keys that are read at once, until a key of the topic changes hands.
local function holder_of(topic, key)
  if topic.f.index == 0 then return nil end
  local known = topic.holders and topic.holders[key]
  if known ~= nil then return known or nil end
  return call('HGET', index_bucket(topic, key, topic.f.index), key) or nil
end

-- Holding a key. The index gets one bucket more whenever its buckets hold too much.

local CROWDED = 48 -- keys a bucket

-- Who holds many keys is read at once, and known until a key of the topic changes hands.
local function learn_holders(topic, keys)
  if topic.f.index == 0 then return end
  local buckets = {}
  for _, key in ipairs(keys) do
    local name = index_bucket(topic, key, topic.f.index)
    buckets[name] = buckets[name] or {}
    table.insert(buckets[name], key)
  end
  topic.holders = {}
  for name, some in pairs(buckets) do
    for i = 1, #some, 1000 do
      local found = call('HMGET', name, unpack(some, i, math.min(i + 999, #some)))
      for k = 1, #found do topic.holders[some[i + k - 1]] = found[k] end
    end
  end
end

local function split_index(topic)
  local buckets = topic.f.index
  local old = topic.prefix .. 'k' .. format('%x', buckets - base_of(buckets))
  set(topic, 'index', buckets + 1)
  local held, bucket, gone, moved = call('HGETALL', old), nil, {}, {}
  for i = 1, #held, 2 do
    local now_in = index_bucket(topic, held[i], buckets + 1)
    if now_in ~= old then
      bucket, gone[#gone + 1] = now_in, held[i]
      moved[#moved + 1], moved[#moved + 2] = held[i], held[i + 1]
    end
  end
  if bucket then
    call('HDEL', old, unpack(gone))
    call('HSET', bucket, unpack(moved))
  end
end

-- Hold many keys: keys and ids by turns.
local function hold_keys(topic, held)
  while topic.f.keys + #held / 2 > topic.f.index * CROWDED do
    if topic.f.index == 0 then set(topic, 'index', math.ceil(#held / 2 / CROWDED)) else split_index(topic) end
  end
  local buckets = {}
  for i = 1, #held, 2 do
    local name = index_bucket(topic, held[i], topic.f.index)
    local fields = buckets[name] or {}
    buckets[name] = fields
    fields[#fields + 1], fields[#fields + 2] = held[i], held[i + 1]
  end
  local new = 0
  for name, fields in pairs(buckets) do
    for i = 1, #fields, 1000 do new = new + call('HSET', name, unpack(fields, i, math.min(i + 999, #fields))) end
  end
  add(topic, 'keys', new)
  topic.holders = nil
end

local function hold_key(topic, key, id) hold_keys(topic, {key, id}) end

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

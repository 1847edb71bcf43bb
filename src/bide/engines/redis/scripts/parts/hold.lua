-- Holding a key. The index gets one bucket more whenever its buckets hold too much.

local CROWDED = 48 -- keys a bucket

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

-- A message holds its key from when it is sent until it ends, dies, or a successor takes the key over.

-- As those of the index, these functions are made when the first is called.
local holding = setmetatable({}, {__index = function(holding, name)
  local CROWDED = 64 -- records a bucket; the index gets one bucket more whenever there are more
  local OVERFULL = 4096 -- bytes; no bucket gets there but by keys that were chosen for it
  local ALIKE = 16 -- records of one tag
  local TAG, SPANS, hash_of, number_of = index.TAG, index.SPANS, index.hash_of, index.number_of
  local bucket_at, next_record, key_of = index.bucket_at, index.next_record, index.key_of

  -- An empty bucket is removed.
  local function write_buckets(topic)
    local written, emptied = {}, {}
    for number in pairs(topic.rewritten) do
      local key, field = index.name_of(topic, number)
      local bucket = topic.buckets[number]
      local groups = bucket == '' and emptied or written
      local group = groups[key] or {}
      groups[key], group[#group + 1] = group, field
      if bucket ~= '' then group[#group + 1] = bucket end
    end
    for key, fields in pairs(written) do call('HSET', key, unpack(fields)) end
    for key, fields in pairs(emptied) do call('HDEL', key, unpack(fields)) end
  end

  local function set_bucket(topic, number, bucket)
    topic.buckets[number] = bucket
    if not topic.rewritten then topic.rewritten, topic.write_buckets = {}, write_buckets end
    topic.rewritten[number] = true
  end

  -- What a record says of a message: its kind and its place. A place is at least 5 bytes long.
  local function shown(id)
    local kind, slot, n = location(id)
    local span = SPANS[sort_of(kind)]
    if not span then return id end
    local place = slot * span + n
    return pack(place < 2 ^ 40 and '>c1I5' or place < 2 ^ 48 and '>c1I6' or '>c1I7', kind, place)
  end

  local function lengthened(message, length)
    if #message > length then return message end
    return sub(message, 1, 1) .. string.rep('\0', length + 1 - #message) .. sub(message, 2)
  end

  local function without(bucket, at, length)
    if #bucket == 1 + length then return '' end
    return sub(bucket, 1, at - 1) .. sub(bucket, at + length)
  end

  -- A bucket whose places are made that long.
  local function lengthen(bucket, length)
    local old = byte(bucket)
    local parts = {char(length)}
    for at = 2, #bucket, TAG + 1 + old do
      parts[#parts + 1] = sub(bucket, at, at + TAG - 1) .. lengthened(sub(bucket, at + TAG, at + TAG + old), length)
    end
    return table.concat(parts)
  end

  -- A bucket without those records of a key's tag that are of no message, and without the key's own; and how many others
  -- have this tag.
  local function clear(topic, key, tag, bucket)
    local at, length = next_record(bucket, tag, 2)
    local alike = 0
    while at do
      local its_key = key_of(topic, index.id_in(bucket, at, length))
      if its_key and its_key ~= key then
        alike, at = alike + 1, at + length
      else
        bucket = without(bucket, at, length)
        add(topic, 'keys', -1)
      end
      at, length = next_record(bucket, tag, at)
    end
    if topic.f.crowd > 0 and call('HDEL', topic.prefix .. 'crowd', key) == 1 then
      add(topic, 'crowd', -1)
      add(topic, 'keys', -1)
    end
    return bucket, alike
  end

  local function hold(topic, key, id)
    local hash, tag = hash_of(key)
    local message, number = shown(id), number_of(topic, hash)
    local bucket, alike = clear(topic, key, tag, bucket_at(topic, number))
    add(topic, 'keys', 1)
    if #bucket >= OVERFULL or alike >= ALIKE then
      call('HSET', topic.prefix .. 'crowd', key, id)
      add(topic, 'crowd', 1)
      return set_bucket(topic, number, bucket)
    end
    if bucket == '' then bucket = char(#message - 1) elseif byte(bucket) < #message - 1 then bucket = lengthen(bucket, #message - 1) end
    set_bucket(topic, number, bucket .. tag .. lengthened(message, byte(bucket)))
  end

  -- One bucket more: it takes what belongs there from the one that had it until now.
  local function split(topic)
    local new = topic.f.index
    local base = index.base_of(new)
    local bucket = bucket_at(topic, new - base)
    set(topic, 'index', new + 1)
    topic.buckets[new] = ''
    if bucket == '' then return end
    local length, staying, going = TAG + 1 + byte(bucket), {sub(bucket, 1, 1)}, {sub(bucket, 1, 1)}
    for at = 2, #bucket, length do
      local some = unpack_('>I3', bucket, at) % (2 * base) == new and going or staying
      some[#some + 1] = sub(bucket, at, at + length - 1)
    end
    if #going == 1 then return end
    set_bucket(topic, new - base, #staying > 1 and table.concat(staying) or '')
    set_bucket(topic, new, table.concat(going))
  end

  -- Make as many buckets as so many keys more need.
  local function grow(topic, more)
    local buckets, wanted, numbers = topic.f.index, math.ceil((topic.f.keys + more) / CROWDED), {}
    wanted = math.min(wanted, index.TAGS)
    if buckets == 0 then
      set(topic, 'index', wanted)
      topic.buckets = {}
      for number = 0, wanted - 1 do topic.buckets[number] = '' end
    end
    for new = topic.f.index, wanted - 1 do
      local old = new - index.base_of(new)
      if old < buckets then numbers[#numbers + 1] = old end
    end
    if #numbers > 0 then index.learn_buckets(topic, numbers) end
    while topic.f.index < wanted do split(topic) end
  end

  -- Hold many keys: keys and ids by turns.
  function holding.hold_all(topic, held)
    grow(topic, #held / 2)
    for i = 1, #held, 2 do hold(topic, held[i], held[i + 1]) end
  end

  -- A key is freed by its holder only.
  function holding.free(topic, key, id)
    if topic.f.index == 0 then return end
    local hash, tag = hash_of(key)
    local message, number = shown(id), number_of(topic, hash)
    local bucket = bucket_at(topic, number)
    local at, length
    if bucket ~= '' and #message <= byte(bucket) + 1 then
      at, length = next_record(bucket, tag .. lengthened(message, byte(bucket)), 2)
    end
    if at then
      set_bucket(topic, number, without(bucket, at, length))
    elseif topic.f.crowd > 0 and call('HGET', topic.prefix .. 'crowd', key) == id then
      call('HDEL', topic.prefix .. 'crowd', key)
      add(topic, 'crowd', -1)
    else
      return
    end
    add(topic, 'keys', -1)
  end

  return rawget(holding, name)
end})

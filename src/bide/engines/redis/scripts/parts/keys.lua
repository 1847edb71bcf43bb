-- The index of keys: which message holds a key.
--
-- It is made of buckets, whose number grows by one whenever they hold too much (linear hashing). A bucket is a string; a group
-- of them is in one hash. It begins with a byte that tells how long its places are; then it has records, all of one length.
-- A record is a tag (3 bytes, the hash of the key), and of the message that holds it the kind of its location (1 byte) and
-- its place among those of that kind. The key is in the message: of each that has the tag it is read and compared. What finds
-- no room in its bucket is in the hash `crowd`: so no bucket is large, and no tag has many records, whatever the keys are.
-- A record whose message was deleted by hand is no holder, and goes when a key with its tag is held.
-- A script reads and writes a bucket once. Topics have `buckets` (by number, what they hold), and `rewritten` (of which
-- that has changed), which are written at the end of the script.

-- Most scripts meet no key, and closures cost time. So the functions of the index are made when the first of them is called.
local index = setmetatable({}, {__index = function(index, name)
  local TAGS = 16777216 -- hashes that there are
  local TAG = 3 -- bytes of one
  local GROUP = 64 -- buckets
  local SPAN = 2 * SOME -- more than a slot has numbers, but one of the finest
  local FORMS = {[5] = '>c1I5', [6] = '>c1I6', [7] = '>c1I7', [9] = '>c1xxI7'} -- of a kind and a place; but see FINEST
  local SPANS = {[0] = SPAN, SPAN, SPAN, SPAN, SPAN, nil, ROW, ROW} -- by sort, so many numbers begin a slot of places

  local hashes, tags = {}, {} -- by key
  local function hash_of(key)
    local hash = hashes[key]
    if not hash then
      hash = tonumber(sub(redis.sha1hex(key), 1, 2 * TAG), 16) % TAGS
      hashes[key], tags[key] = hash, pack('>I3', hash)
    end
    return hash, tags[key]
  end

  -- The power of two that so many buckets grew from.
  local base, bases = 1, 0
  local function base_of(buckets)
    if buckets ~= bases then
      local _, exponent = math.frexp(buckets)
      base, bases = math.ldexp(1, exponent - 1), buckets
    end
    return base
  end

  -- The number of the bucket of a hash.
  local function number_of(topic, hash)
    local buckets = topic.f.index
    local half = base_of(buckets)
    local at = hash % (2 * half)
    return at < buckets and at or at - half
  end

  -- The hash that a bucket is in, and its field there.
  local function name_of(topic, number)
    return topic.prefix .. format('k%x', floor(number / GROUP)), format('%x', number % GROUP)
  end

  local function bucket_at(topic, number)
    topic.buckets = topic.buckets or {}
    local bucket = topic.buckets[number]
    if not bucket then
      bucket = call('HGET', name_of(topic, number)) or ''
      topic.buckets[number] = bucket
    end
    return bucket
  end

  -- Many buckets are read at once.
  local function learn_buckets(topic, numbers)
    local known, groups = topic.buckets or {}, {}
    topic.buckets = known
    for _, number in ipairs(numbers) do
      if not known[number] then
        local name, field = name_of(topic, number)
        local group = groups[name] or {fields = {}, numbers = {}}
        groups[name], known[number] = group, ''
        group.fields[#group.fields + 1], group.numbers[#group.numbers + 1] = field, number
      end
    end
    for name, group in pairs(groups) do
      for i, bucket in ipairs(call('HMGET', name, unpack(group.fields))) do known[group.numbers[i]] = bucket or '' end
    end
  end

  -- Where a bucket has the next record that begins so, from there on; and how long its records are.
  local function next_record(bucket, head, from)
    local at = string.find(bucket, head, from, true)
    if not at then return nil end
    local length = TAG + 1 + byte(bucket)
    while at do
      local inside = (at - 2) % length
      if inside == 0 then return at, length end
      at = string.find(bucket, head, at + length - inside, true)
    end
  end

  local function id_in(bucket, at, length)
    local kind, place = unpack_(FORMS[length - TAG - 1], bucket, at + TAG)
    local span = SPANS[sort_of(kind)]
    if not span then return sub(bucket, at + TAG, at + length - 1) end
    return id_of(kind, floor(place / span), place % span)
  end

  -- The key of a message, and its value if it was read just now; false when there is no such message.
  local function key_of(topic, id)
    local known = topic.known or {}
    topic.known = known
    if known[id] ~= nil then return known[id] end
    local value = read(topic, id)
    known[id] = value and content(id, value).key or false
    return known[id], value
  end

  function index.learn(topic, keys)
    if topic.f.index == 0 then return end
    local numbers = {}
    for i, key in ipairs(keys) do numbers[i] = number_of(topic, hash_of(key)) end
    learn_buckets(topic, numbers)
  end

  -- The id of the message that holds a key, and its value if it was read just now.
  function index.holder(topic, key)
    if topic.f.index == 0 then return nil end
    local hash, tag = hash_of(key)
    local bucket = bucket_at(topic, number_of(topic, hash))
    local at, length = next_record(bucket, tag, 2)
    while at do
      local id = id_in(bucket, at, length)
      local its_key, value = key_of(topic, id)
      if its_key == key then return id, value end
      at, length = next_record(bucket, tag, at + length)
    end
    return topic.f.crowd > 0 and call('HGET', topic.prefix .. 'crowd', key) or nil
  end

  index.TAGS, index.TAG, index.GROUP, index.SPANS = TAGS, TAG, GROUP, SPANS
  index.hash_of, index.base_of, index.number_of, index.name_of, index.learn_buckets = hash_of, base_of, number_of, name_of, learn_buckets
  index.bucket_at, index.next_record, index.id_in, index.key_of = bucket_at, next_record, id_in, key_of
  return rawget(index, name)
end})

-- Which message holds a key, and when messages expire.

-- part: keys
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

-- part: holding
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

-- part: expiries
-- When messages expire, of the whole shard. Who finds a message looks at what is written of it; this is for tend, which removes
-- those that nobody looks at. So an entry may be left that is of no use: of a message that has ended, or expires later.
--
-- A cluster moves each key to another node as a whole, and both nodes wait for that. So the entries are spread over PARTS sorted
-- sets, by where the message lives: `exp:` and a number. `exp:next` has for each of them a time before which nothing in it
-- expires. That time may be too early, but never too late. Releases before had all entries in `exp`.

-- These functions are made when the first is called: most scripts meet no message that expires.
local expiries = setmetatable({}, {__index = function(expiries, name)
  local PARTS = 127
  local EXPIRIES, NEXT_EXPIRY = P .. 'exp', P .. 'exp:next'

  -- The messages of a list have the same part. Lists that stand side by side, or at even distances, have different ones.
  local function part_of(full)
    local number, _, slot, n = unpack_('>I5c1I6I3', full)
    local place = (number + slot * 64 + floor(n / BUCKET)) % 65521
    return format('%x', place * 40503 % 65521 % PARTS)
  end

  function expiries.key_of(part) return EXPIRIES .. ':' .. part end

  -- A release before may have noted it elsewhere, unless the message is new.
  function expiries.note_one(full, at, fresh)
    local part = part_of(full)
    local added = call('ZADD', expiries.key_of(part), at, full)
    call('ZADD', NEXT_EXPIRY, 'LT', at, part)
    need_upkeep(at)
    if added == 1 and not fresh then call('ZREM', EXPIRIES, full) end
  end

  function expiries.expect(topic)
    if topic.f.expires == 0 then set(topic, 'expires', 1) end
  end

  function expiries.note_of(topic, id, at)
    expiries.expect(topic)
    expiries.note_one(full_of(topic, id), at)
  end

  -- Times and full ids by turns, up to two thousand. `fresh`: all are of new messages.
  function expiries.note(flat, fresh)
    if #flat == 2 then return expiries.note_one(flat[2], flat[1], fresh) end
    local groups, fulls, firsts, added, earliest = {}, {}, {}, 0, math.huge
    for i = 1, #flat, 2 do
      local part = part_of(flat[i + 1])
      local group = groups[part] or {first = math.huge}
      groups[part], group[#group + 1], group[#group + 2] = group, flat[i], flat[i + 1]
      group.first = math.min(group.first, flat[i])
      fulls[#fulls + 1] = flat[i + 1]
    end
    for part, group in pairs(groups) do
      added = added + call('ZADD', expiries.key_of(part), unpack(group))
      firsts[#firsts + 1], firsts[#firsts + 2] = group.first, part
      earliest = math.min(earliest, group.first)
    end
    call('ZADD', NEXT_EXPIRY, 'LT', unpack(firsts))
    need_upkeep(earliest)
    if added > 0 and not fresh then call('ZREM', EXPIRIES, unpack(fulls)) end
  end

  function expiries.forget(full)
    if call('ZREM', expiries.key_of(part_of(full)), full) == 0 then call('ZREM', EXPIRIES, full) end
  end

  -- Note when the first of a part expires, or that it is empty.
  function expiries.note_first(part)
    local first = call('ZRANGE', expiries.key_of(part), 0, 0, 'WITHSCORES')[2]
    if first then
      call('ZADD', NEXT_EXPIRY, first, part)
    else
      call('ZREM', NEXT_EXPIRY, part)
    end
  end

  function expiries.note_all_parts()
    for _, part in ipairs(call('ZRANGE', NEXT_EXPIRY, 0, -1)) do expiries.note_first(part) end
  end

  return rawget(expiries, name)
end})

-- Where messages live, and their topics.

-- part: layout
-- Where messages live.
--
-- A message's location is an entry of a list, a bucket of 64, from send to end: kind (1 byte), slot (6) and number (3) tell
-- which, and are its id in its topic. With the topic's number before them they are its full id.
-- Of each level of priority there are six calendars, of slots from 37 hours down to a millisecond, and two rows: of what
-- is near, and of what was ready when it came. Together they are the kinds of locations, a letter each: level * 8 + sort.

local COARSE, MINUTE, FINEST, NEAR, READY = 0, 2, 5, 6, 7 -- the sorts that have names; a slot of MINUTE is 65.5 seconds
local SLOT = {[0] = 134217728, 4194304, 65536, 2048, 64, 1} -- ms, by sort
local FORM = {[0] = '>I4', '>I3', '>I2', '>I2', '>I1', '', '>I6', '>I6'} -- of a due time: from the start of its slot; in a row, as it is
local FLAGS_AT = {[0] = 7, 6, 5, 5, 4, 3, 9, 9} -- where in a value the flags are, behind salt and due time
local FEW, SOME = 512, 4096
local NUMBERS = 16777216 -- as many as an id can tell apart in one slot
local ROOM = {[0] = FEW, FEW, SOME, SOME, SOME, NUMBERS} -- messages in a slot; but see place.lua
local BUCKET = 64
local ROW = 1048576 -- numbers of a row that share a slot

local FIRST = byte('A') -- of the kinds
local function kind_of(level, sort) return char(FIRST + level * 8 + sort) end
local function level_of(kind) return floor((byte(kind) - FIRST) / 8) end
local function sort_of(kind) return (byte(kind) - FIRST) % 8 end
local function is_kind(text) return byte(text) >= FIRST and byte(text) <= byte('X') end -- also of what begins with one

local TOPIC, ID, FULLID = 5, 10, 15 -- bytes

local function location(id)
  local kind, slot, n = unpack_('>c1I6I3', id)
  return kind, slot, n
end
local function id_of(kind, slot, n) return pack('>c1I6I3', kind, slot, n) end

local function slot_name(kind, slot) return kind .. format('%x', slot) end

local function bucket_of(topic, kind, slot, n)
  return topic.prefix .. 'b' .. kind .. format('%x:%x', slot, floor(n / BUCKET))
end
local function large_of(topic, id)
  local kind, slot, n = location(id)
  return topic.prefix .. 'm' .. kind .. format('%x:%x', slot, n)
end

-- When the message of a value was due when it was sent, in a slot that begins at `start` (0 in a row).
local function due_from(start, sort, value)
  if sort == FINEST then return start end
  return start + unpack_(FORM[sort], value, 3)
end

local function full_of(topic, id) return topic.head .. id end
local function parts_of(full) return format('%x', (unpack_('>I5', full))), sub(full, TOPIC + 1) end

-- A message: what is written of it, and what it can be.
--
-- What is written there: salt (2 bytes), due time (from the slot's start), flags, and what the client put together:
-- [max_attempts][expires_in][key][headers] body. A body over 1 KiB has a key of its own.
-- What has changed since it was sent (its time, its attempts, its level, its death) is in the hash `life`: due, since,
-- attempt, level, marks, error. Whoever has a life is looked for in the zsets alone, never in its slot.

local FLAG = {attempts = 1, expires = 2, keyed = 4, headers = 8, large = 16, instant = 32} -- the last: it was sent for an instant
-- Another mark is 2: records of its failed attempts, as engines/stored.py has them, are in a key of their own, which has the
-- name of that of a large body and `:t` behind it. No claim reads it. And 4: a second field of `life`, its id and a b, has its
-- `since`, and when its first attempt began. That counts only while the life has the same `since`: a release that does not know
-- it keeps the mark when it gives the message a new time.
local KEYLESS = 1 -- a mark: a successor has taken its key over
local BY_CLOCK = 8 -- another: its due time is an instant. A release before leaves it there with any time: it may come late then

-- While the clock is behind engine time, it holds instants back. In the zset they have a time at which they are looked at again,
-- which is when the clock reaches them, unless it is set again; so they are looked at after ten seconds, too.
local function has(flags, flag) return flags % (2 * flag) >= flag end

-- What engine time is when the clock reaches an instant: while it is behind, at half its speed. Rounded up, so never too early.
local function reached_at(due) return math.max(due, now + math.ceil((due - wall) / 2)) end

local function look_again_at(due) return due > now and due or math.min(reached_at(due), now + 10000) end

-- Whether engine time comes to what is due then only later, if it is an instant.
local function waits(due, flags) return wall < now and due < 2 * now - wall and has(flags, FLAG.instant) end

local function flags_of(id, value) return byte(value, FLAGS_AT[sort_of(id)]) end

local function read(topic, id)
  local kind, slot, n = location(id)
  local value = call('LINDEX', bucket_of(topic, kind, slot, n), n % BUCKET)
  if value and value ~= '' then return value end
end

-- The fields that the client wrote: flags, max_attempts, expires_in, key.
local function content(id, value)
  local at = FLAGS_AT[sort_of(id)]
  local flags = byte(value, at)
  local found = {flags = flags, attempts = 3}
  at = at + 1
  if has(flags, FLAG.attempts) then found.attempts, at = unpack_('>I2', value, at) end
  if has(flags, FLAG.expires) then found.expires, at = unpack_('>I6', value, at) end
  if has(flags, FLAG.keyed) then
    local length
    length, at = byte(value, at), at + 1
    if length == 255 then length, at = unpack_('>I2', value, at) end -- a key of so many bytes or more: two more tell it
    found.key = sub(value, at, at + length - 1)
  end
  return found
end

local function born_due(id, value)
  local kind, slot = location(id)
  local sort = sort_of(kind)
  return due_from(sort <= FINEST and slot * SLOT[sort] or 0, sort, value)
end

local function has_life(topic)
  if topic.lives == nil then topic.lives = call('HLEN', topic.prefix .. 'life') > 0 end
  return topic.lives
end

local function life_from(text)
  if not text then return nil end
  local due, since, attempt, level, marks = unpack_('>I6I6I2BB', text)
  return {due = due, since = since, attempt = attempt, level = level, marks = marks, error = sub(text, 17)}
end

local function life_of(topic, id)
  return has_life(topic) and life_from(call('HGET', topic.prefix .. 'life', id)) or nil
end

local function life_text(life)
  return pack('>I6I6I2BB', life.due, life.since, life.attempt, life.level, life.marks) .. life.error
end

local function began_from(text, life)
  if not text then return nil end
  local since, began = unpack_('>I6I6', text)
  return since == life.since and began or nil
end

local function began_of(topic, id, life)
  return has(life.marks, 4) and began_from(call('HGET', topic.prefix .. 'life', id .. 'b'), life) or nil
end

local function is_instant(id, value, life)
  if life then return has(life.marks, BY_CLOCK) end
  return has(flags_of(id, value), FLAG.instant)
end

-- A new time for a life: an instant, or not.
local function set_due(life, due, instant)
  if has(life.marks, BY_CLOCK) ~= (instant or false) then life.marks = life.marks + (instant and BY_CLOCK or -BY_CLOCK) end
  life.due = due
end

local function opened(topic, id)
  local kind, slot, n = location(id)
  local sort = sort_of(kind)
  if sort == NEAR then return true end
  if sort == READY then return slot * ROW + n < topic.f['p' .. kind] end
  local cursor = topic.f['c' .. kind]
  return slot < cursor or (slot == cursor and n < topic.f['p' .. kind])
end

-- What a message is: far (in its slot or row, not taken out), near (in a zset, and its score), dead, or leased.
local function state_of(topic, id, life)
  if not life and not opened(topic, id) then return 'far' end
  local level = life and life.level or level_of(id)
  local score = call('ZSCORE', topic.prefix .. 'due' .. level, id)
  if score then return 'near', score end
  if life and call('ZSCORE', topic.prefix .. 'dead', id) then return 'dead' end
  return 'leased'
end

local function expiry_of(id, value, life)
  if not has(flags_of(id, value), FLAG.expires) then return nil end
  local known = content(id, value)
  return (life and life.since or born_due(id, value)) + known.expires
end

local function expired(id, value, life)
  local expires = expiry_of(id, value, life)
  return expires and expires <= now
end

-- part: topics
-- A topic: its number, its counters, and the keys that begin with it.
--
-- Each topic has a number, which is used once: an empty topic is removed, and made again under another number.
-- `topics` has by name the number and a time before which nothing of the topic is due, so a claim of many topics reads no more
-- of those without a due message. That time may be too early, but never too late.

local NEVER = 9007199254740991 -- the time of a topic that is paused or has nothing pending

local topics = {}
local topic_of
do
  local zero = {__index = function() return 0 end}

  function topic_of(digits)
    local prefix = P .. digits .. ':'
    return {digits = digits, head = pack('>I5', tonumber(digits, 16)), prefix = prefix, changed = {}, entered = {}, calendars = {},
            f = setmetatable({}, zero)}
  end
end

-- The fields of a topic are numbers, but for its name; one that is missing is 0. `keys` counts keys,
-- `crowd` those that found no room in their bucket, and `index` the buckets of their index; of a calendar, `s` is one more than its first slot (0: it has none), `c` the slot that was
-- entered last, `p` how far into it messages were taken out, and `d` how many it had, or would have if it were not
-- sealed; of a row, `b` is how many came, `p` how many were taken out, and `g` how many of the others are gone.
-- `next` is the time that `topics` has. `expires` is 1 if one of its messages had an expiry. `dropped` counts dead letters, and
-- `last` is when the last of them was dropped.
local function load(digits)
  if topics[digits] ~= nil then return topics[digits] end
  local flat = call('HGETALL', P .. digits .. ':h')
  if #flat == 0 then
    topics[digits] = false
    return false
  end
  local topic = topic_of(digits)
  for i = 1, #flat, 2 do
    if flat[i] == 'name' then topic.name = flat[i + 1] else topic.f[flat[i]] = tonumber(flat[i + 1]) end
  end
  topics[digits] = topic
  return topic
end

-- What `topics` has of one: its number, and a time before which nothing of it is due.
local function noted(known)
  local digits, due = string.match(known, '^(%x+)@?(%d*)$')
  return digits, tonumber(due) or 0
end

local function find_topic(name)
  local known = call('HGET', P .. 'topics', name)
  return known and load(string.match(known, '^%x+')) or nil
end

-- The first slot of a calendar; nil when it has none.
local function first_slot(topic, kind)
  local first = topic.f['s' .. kind]
  if first > 0 then return first - 1 end
end

-- The calendars of a level that have slots.
local function calendars_of(topic, level)
  local kinds = topic.calendars[level]
  if kinds then return kinds end
  kinds = {}
  for sort = COARSE, FINEST do
    local kind = kind_of(level, sort)
    if topic.f['s' .. kind] > 0 then kinds[#kinds + 1] = kind end
  end
  topic.calendars[level] = kinds
  return kinds
end

-- Changed counters are written at the end of the script.

local function set(topic, field, value)
  topic.f[field] = value
  topic.changed[field] = true
end

local made = {} -- topics by name

-- A new topic is written by close_topics.
local function make_topic(name)
  local topic = made[name] or find_topic(name)
  if not topic then
    local digits = format('%x', call('HINCRBY', META, 'topic', 1))
    topic = topic_of(digits)
    topic.name, topic.new = name, true
    topics[digits] = topic
    set(topic, 'next', NEVER)
  end
  made[name] = topic
  return topic
end

local function add(topic, field, by) set(topic, field, topic.f[field] + by) end

local function set_first(topic, kind, slot)
  set(topic, 's' .. kind, slot and slot + 1 or 0)
  topic.calendars[level_of(kind)] = nil
end

local function use_level(topic, level)
  if topic.f['l' .. level] == 0 then set(topic, 'l' .. level, 1) end
end

local drop -- removes an empty topic; in scripts that end messages

local function close_topics()
  local agenda = {}
  for _, topic in pairs(topics) do
    if topic then
      if topic.rewritten then topic.write_buckets(topic) end
      if drop and topic.f.live == 0 and topic.f.paused == 0 and topic.f.dropped == 0 then
        drop(topic)
      else
        local values = topic.new and {'name', topic.name} or {}
        for field in pairs(topic.changed) do
          values[#values + 1] = field
          values[#values + 1] = format('%d', topic.f[field])
        end
        if #values > 0 then call('HSET', topic.prefix .. 'h', unpack(values)) end
        if topic.changed.next then
          agenda[#agenda + 1], agenda[#agenda + 2] = topic.name, format('%s@%d', topic.digits, topic.f.next)
        end
      end
    end
  end
  for i = 1, #agenda, 1000 do call('HSET', P .. 'topics', unpack(agenda, i, math.min(i + 999, #agenda))) end
end

-- A message: what is written of it, and what it can be.
--
-- What is written in its home: salt (2 bytes), due time (from the slot's start), flags, and what the client put together:
-- [max_attempts][expires_in][key][headers] body. A body over 1 KiB has a key of its own.
-- What has changed since it was sent (its time, its attempts, its level, its death) is in the hash `life`: due, since,
-- attempt, level, marks, error. Whoever has a life is looked for in the zsets alone, never in its slot.

local ATTEMPTS, EXPIRES, KEYED, HEADERS, LARGE = 1, 2, 4, 8, 16
local KEYLESS = 1 -- a mark: a successor has taken its key over

local function has(flags, flag) return flags % (2 * flag) >= flag end

local function flags_of(id, value) return byte(value, FLAGS_AT[sort_of(id)]) end

local function read(topic, id)
  local kind, slot, n = home(id)
  local value = call('LINDEX', bucket_of(topic, kind, slot, n), n % BUCKET)
  if value and value ~= '' then return value end
end

-- The fields that the client wrote: flags, max_attempts, expires_in, key.
local function content(id, value)
  local at = FLAGS_AT[sort_of(id)]
  local flags = byte(value, at)
  local found = {flags = flags, attempts = 3}
  at = at + 1
  if has(flags, ATTEMPTS) then found.attempts, at = unpack_('>I2', value, at) end
  if has(flags, EXPIRES) then found.expires, at = unpack_('>I6', value, at) end
  if has(flags, KEYED) then
    local length
    length, at = unpack_('>I2', value, at)
    found.key = sub(value, at, at + length - 1)
  end
  return found
end

local function born_due(id, value)
  local kind, slot = home(id)
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

local function opened(topic, id)
  local kind, slot, n = home(id)
  local sort = sort_of(kind)
  if sort == NEAR then return true end
  if sort == READY then return slot * ROW + n < topic.f['p' .. kind] end
  local cursor = topic.f['c' .. kind]
  return slot < cursor or (slot == cursor and n < topic.f['p' .. kind])
end

-- What a message is: far (in its slot or row, not taken out), near (in a zset), dead, or leased.
local function state_of(topic, id, life)
  if not life and not opened(topic, id) then return 'far' end
  local level = life and life.level or level_of(id)
  if call('ZSCORE', topic.prefix .. 'due' .. level, id) then return 'near' end
  if life and call('ZSCORE', topic.prefix .. 'dead', id) then return 'dead' end
  return 'leased'
end

local function expiry_of(id, value, life)
  if not has(flags_of(id, value), EXPIRES) then return nil end
  local known = content(id, value)
  return (life and life.since or born_due(id, value)) + known.expires
end

local function expired(id, value, life)
  local expires = expiry_of(id, value, life)
  return expires and expires <= now
end

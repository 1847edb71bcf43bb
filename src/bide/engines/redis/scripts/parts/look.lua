-- Looking at messages without touching them.

local looked = 0 -- buckets read, of which one script may read so many
local LOOKS = 256

-- The pending messages of a slot or row from a number on: calls seen(id, value) for each.
local function each_in(topic, kind, slot, first, births, seen)
  local n = first
  while n < births do
    local values = call('LRANGE', bucket_of(topic, kind, slot, n), n % BUCKET, -1)
    local ids, found = {}, {}
    for i = 1, #values do
      if values[i] ~= '' then
        ids[#ids + 1] = pack('>c1I4I4', kind, slot, n + i - 1)
        found[#found + 1] = values[i]
      end
    end
    local lives = #ids > 0 and has_life(topic) and call('HMGET', topic.prefix .. 'life', unpack(ids)) or {}
    for i, id in ipairs(ids) do
      if not lives[i] then seen(id, found[i]) end
    end
    looked = looked + 1
    n = n + BUCKET - n % BUCKET
  end
end

-- The slots of a calendar that hold something far: {kind, slot, first, births, count, start, over}.
local function slots_of(topic, level)
  local found = {}
  for sort = COARSE, FINE do
    local kind = kind_of(level, sort)
    local names = call('ZRANGE', topic.prefix .. 'o' .. kind, 0, -1)
    for _, name in ipairs(names) do
      local slot, counts = tonumber(sub(name, 2), 16), call('HMGET', topic.prefix .. 'slots', name, 'g' .. name)
      local first = topic.f['c' .. kind] == slot and topic.f['p' .. kind] or 0
      local births, start = tonumber(counts[1]), slot * SLOT[sort]
      local count = births - first - tonumber(counts[2] or 0)
      if count > 0 then
        found[#found + 1] = {kind = kind, slot = slot, first = first, births = births, count = count, start = start,
                             stop = start + SLOT[sort]}
      end
    end
  end
  table.sort(found, function(a, b) return a.start < b.start or (a.start == b.start and a.kind < b.kind) end)
  return found
end

-- What of the ready row has not been taken out, as slots are given.
local function ready_of(topic, level)
  local kind = kind_of(level, READY)
  local first, births, gone = topic.f['p' .. kind], topic.f['b' .. kind], topic.f['g' .. kind]
  return {kind = kind, first = first, births = births, count = births - first - gone}
end

local function each_ready(topic, row, seen)
  local n = row.first
  while n < row.births do
    local stop = math.min(row.births, n - n % BUCKET + BUCKET)
    each_in(topic, row.kind, floor(n / ROW), n % ROW, n % ROW + stop - n, seen)
    n = stop
  end
end

local function each_far(topic, level, seen)
  each_ready(topic, ready_of(topic, level), seen)
  for _, at in ipairs(slots_of(topic, level)) do each_in(topic, at.kind, at.slot, at.first, at.births, seen) end
end

local function expired(id, value, life)
  local expires = expiry_of(id, value, life)
  return expires and expires <= now
end

-- When the lease of a message ends: units are few, and looked through.
local function lease_end(full)
  local leases = call('ZRANGE', P .. 'lease', 0, -1, 'WITHSCORES')
  for i = 1, #leases, 2 do
    local unit = unit_of(leases[i])
    for place = 1, unit and #unit.states or 0 do
      if is_open(unit, place, full) then
        local deadlines = deadlines_of(unit)
        return deadlines and unpack_('>I6', deadlines, place * 6 - 5) or tonumber(leases[i + 1])
      end
    end
  end
end

-- All that is to be told of a message: its topic's number, id, value, state, life, large body, end of lease.
local function shown(topic, id, value, life, state)
  local text, large, till = '', '', ''
  if life then
    text = pack('>I6I6I2BB', life.due, life.since, life.attempt, life.level, life.marks) .. life.error
  end
  if has(content(id, value).flags, LARGE) then large = call('GET', large_of(topic, id)) or '' end
  if state == 'leased' then till = format('%d', lease_end(full_of(topic, id)) or now) end
  return {topic.digits, id, value, state, text, large, till}
end

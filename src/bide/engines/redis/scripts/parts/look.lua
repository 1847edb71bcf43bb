-- Looking at messages without touching them.

local looked = 0 -- buckets read, of which one script may read so many
local LOOKS = 256
local CROWD = 4096 -- messages: a slot or row with more is looked at in the order of sending, a part at a time

-- The pending messages of a slot from a number on: calls seen(id, value) for each, until it gives false. Gives the
-- number that it got to.
local function each_in(topic, kind, slot, first, births, seen)
  local n = first
  while n < births do
    if looked >= LOOKS then return n end
    local values = call('LRANGE', bucket_of(topic, kind, slot, n), n % BUCKET, -1)
    looked = looked + (#values > 0 and 1 or 1 / 16)
    local ids, found = {}, {}
    for i = 1, #values do
      if values[i] ~= '' then
        ids[#ids + 1] = id_of(kind, slot, n + i - 1)
        found[#found + 1] = values[i]
      end
    end
    local lives = #ids > 0 and has_life(topic) and call('HMGET', topic.prefix .. 'life', unpack(ids)) or {}
    for i, id in ipairs(ids) do
      if not lives[i] and seen(id, found[i]) == false then return select(3, home(id)) end
    end
    n = n + BUCKET - n % BUCKET
  end
  return births
end

-- The slots of a level that hold something far, by their start: {kind, slot, first, births, count, start, stop}.
local function slots_of(topic, level)
  local flat, counts, found = call('HGETALL', topic.prefix .. 'slots'), {}, {}
  for i = 1, #flat, 2 do counts[flat[i]] = tonumber(flat[i + 1]) end
  for name, births in pairs(counts) do
    local kind = sub(name, 1, 1)
    if is_kind(kind) and level_of(kind) == level then -- the others, with a g or x before, tell of those that are gone
      local slot, sort = tonumber(sub(name, 2), 16), sort_of(kind)
      local first = topic.f['c' .. kind] == slot and topic.f['p' .. kind] or 0
      local count = births - first - (counts['g' .. name] or 0)
      local start = slot * SLOT[sort]
      if count > 0 then
        first = math.max(first, counts['x' .. name] or 0)
        found[#found + 1] = {kind = kind, slot = slot, name = name, first = first, births = births, count = count,
                             start = start, stop = start + SLOT[sort]}
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
    local stop = math.min(row.births, n - n % ROW + ROW)
    local got = each_in(topic, row.kind, floor(n / ROW), n % ROW, n % ROW + stop - n, seen)
    if got < n % ROW + stop - n then return n - n % ROW + got end
    n = stop
  end
  return row.births
end

local function expired(id, value, life)
  local expires = expiry_of(id, value, life)
  return expires and expires <= now
end

-- When the lease of a message ends. All units are looked through, once a script.
local lease_ends
local function lease_end(full)
  if not lease_ends then
    lease_ends = {}
    local leases = call('ZRANGE', P .. 'lease', 0, -1, 'WITHSCORES')
    for i = 1, #leases, 2 do
      local unit = unit_of(leases[i])
      local deadlines = unit and deadlines_of(unit)
      for place = 1, unit and #unit.states or 0 do
        if unit.states[place] ~= ENDED then
          lease_ends[full_at(unit, place)] = deadlines and unpack_('>I6', deadlines, place * 6 - 5) or tonumber(leases[i + 1])
        end
      end
    end
  end
  return lease_ends[full]
end

-- All that is to be told of a message: its topic's number, id, value, state, life, large body, end of lease.
local function shown(topic, id, value, life, state)
  local text, large, till = life and life_text(life) or '', '', ''
  if has(content(id, value).flags, LARGE) then large = call('GET', large_of(topic, id)) or '' end
  if state == 'leased' then till = format('%d', lease_end(full_of(topic, id)) or now) end
  return {topic.digits, id, value, state, text, large, till}
end

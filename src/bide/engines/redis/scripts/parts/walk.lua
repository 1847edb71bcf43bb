-- Messages are looked at in order, without touching them.

-- part: walk
-- Walking through the slots of a calendar and through a row, in order, without touching them. No script does more than
-- EFFORT at once: it says where it stopped, and is asked to go on.

local EFFORT = 2500 -- about microseconds of a quiet server's time
local worked, passed, looks = 0, 0, 0 -- effort made; slots passed and buckets read, of which each script does one at least
local function tired() return worked >= EFFORT end

local function slot_of(name) return tonumber(sub(name, 2), 16) end
local function due_in(at, value) return due_from(at.start, sort_of(at.kind), value) end

-- The pending messages of a slot, or of the part of a row, from the number n on: calls seen(value, n) for each, until it
-- gives false. Gives the number that it got to.
local function look_in(topic, at, n, seen)
  while n < at.births do
    if tired() and looks > 0 then return n end
    local values = call('LRANGE', bucket_of(topic, at.kind, at.slot, n), n % BUCKET, -1)
    local count, ids, lives = math.min(#values, at.births - n), {}, {}
    looks, worked = looks + 1, worked + 2 + count / 2
    if at.gone > 0 and count > 0 and has_life(topic) then
      for i = 1, count do ids[i] = id_of(at.kind, at.slot, n + i - 1) end
      lives = call('HMGET', topic.prefix .. 'life', unpack(ids))
      worked = worked + count / 3
    end
    for i = 1, count do
      local value = values[i]
      worked = worked + #value / 4096
      if value ~= '' and not lives[i] and seen(value, n + i - 1) == false then return n + i - 1 end
    end
    n = n + BUCKET - n % BUCKET
  end
  return at.births
end

local function slot_at(topic, kind, name, births, gone)
  local slot, length = slot_of(name), SLOT[sort_of(kind)]
  local first = topic.f['c' .. kind] == slot and topic.f['p' .. kind] or 0
  return {kind = kind, slot = slot, name = name, first = first, births = births, gone = gone, count = births - first - gone,
          start = slot * length, stop = slot * length + length}
end

-- The slots of a calendar that hold something pending, from the number `from` on: calls seen(at) for each; it gives the
-- number to go on from, or nil to stop at this one. Gives the slot that it stopped at, or nil when it came to the end.
local function each_slot(topic, kind, from, seen)
  local many, first = 8, first_slot(topic, kind)
  if not first then return nil end
  from = math.max(from, first)
  while true do
    local names = call('ZRANGEBYSCORE', topic.prefix .. 'o' .. kind, format('%d', from), '+inf', 'LIMIT', 0, many)
    if #names == 0 then return nil end
    local fields = {}
    for i = 1, #names do fields[2 * i - 1], fields[2 * i] = names[i], 'g' .. names[i] end
    local counts = call('HMGET', topic.prefix .. 'slots', unpack(fields))
    worked = worked + 4 + #names / 2
    for i = 1, #names do
      local slot = slot_of(names[i])
      if slot >= from then -- else it was told to go on behind this one
        if tired() and passed > 0 then return slot end
        passed, worked = passed + 1, worked + 2
        local at = slot_at(topic, kind, names[i], tonumber(counts[2 * i - 1] or 0), tonumber(counts[2 * i] or 0))
        from = slot + 1
        if at.count > 0 then from = seen(at) end
        if not from then return slot end
        if from == math.huge then return nil end
      end
    end
    many = math.min(many * 2, 512)
  end
end

-- What of the ready row has not been taken out. It is in due order, as a message is due there when it comes.
local function ready_of(topic, level)
  local kind = kind_of(level, READY)
  local first, births, gone = topic.f['p' .. kind], topic.f['b' .. kind], topic.f['g' .. kind]
  return {kind = kind, first = first, births = births, gone = gone, count = births - first - gone}
end

-- The part of a row that shares the slot of the number n, as slots are given.
local function part_at(row, n)
  local slot = floor(n / ROW)
  return {kind = row.kind, slot = slot, births = math.min(ROW, row.births - slot * ROW), gone = row.gone, start = 0}
end

-- As look_in, in a row.
local function look_along(topic, row, n, seen)
  while n < row.births do
    local part = part_at(row, n)
    local base = part.slot * ROW
    local got = look_in(topic, part, n - base, function(value, at) return seen(value, base + at) end)
    if got < part.births then return base + got end
    n = base + got
  end
  return row.births
end

-- part: first
-- Of all the messages that come by, the first `limit` behind a mark, in due order; those of one due time by their ids,
-- which is the order of sending in each slot and row.

local dues, ids, many = {}, {}, 0
local limit, low, high, after -- how many, from which due time to which, and the id behind which those of the first are
local last -- the id before which those of the last due time are, once some of them were cut

-- An id as two numbers: the server's locale may put texts into an order of its own.
local function rank(id)
  local kind, slot, n = location(id)
  return (byte(kind) - FIRST) * 281474976710656 + slot, n
end

local function ranked(id)
  local found = {id = id, kind = sub(id, 1, 1)}
  found.head, found.n = rank(id)
  return found
end

local function is_behind(id, other)
  local head, n = rank(id)
  return head > other.head or (head == other.head and n > other.n)
end

local function follows(id) return not after or is_behind(id, after) end

local function look_for(most, from, id, to)
  limit, low, high = most, from, to
  if id ~= '' then after = ranked(id) end
end

-- The first of so many ids.
local function first_of(some, count)
  local heads, groups, found = {}, {}, {}
  for _, id in ipairs(some) do
    local head, n = rank(id)
    local group = groups[head]
    if not group then
      group = {ids = {}}
      groups[head], heads[#heads + 1] = group, head
    end
    group[#group + 1], group.ids[n] = n, id
  end
  table.sort(heads)
  for _, head in ipairs(heads) do
    local group = groups[head]
    table.sort(group)
    for _, n in ipairs(group) do
      if #found == count then return found end
      found[#found + 1] = group.ids[n]
    end
  end
  return found
end

-- Keep the first `limit`; what comes behind the last of them is not wanted any more.
local function cut()
  if many <= limit then return end
  worked = worked + many
  local sorted = {unpack(dues, 1, many)}
  table.sort(sorted)
  if sorted[limit] < high then last = nil end
  high = sorted[limit]
  local ties, count = {}, 0
  for i = 1, many do
    if dues[i] < high then
      count = count + 1
      dues[count], ids[count] = dues[i], ids[i]
    elseif dues[i] == high then
      ties[#ties + 1] = ids[i]
    end
  end
  if #ties > limit - count then
    ties = first_of(ties, limit - count)
    last = ranked(ties[#ties])
  end
  for _, id in ipairs(ties) do
    count = count + 1
    dues[count], ids[count] = high, id
  end
  many = count
end

-- Whether it is one of them, as far as is known.
local function consider(due, id)
  if due < low or due > high or (due == low and not follows(id)) then return false end
  if last and due == high and is_behind(id, last) then return false end
  many, worked = many + 1, worked + 1
  dues[many], ids[many] = due, id
  if many >= 2 * limit + 100 then cut() end
  return true
end

-- Due time (or what else they are sorted by), the end of the lease (0 for none), and id of each, as one text.
local function candidates(until_of)
  cut()
  local found = {}
  for i = 1, many do found[i] = pack('>I6I6', dues[i], until_of and until_of(ids[i]) or 0) .. ids[i] end
  return table.concat(found)
end

-- A page of a topic. After what every script is told: topic, state ('' all), how many, and the mark of the last page:
-- stage (1 pending, 2 leased, 3 dead), its order, id; stage 0 for the first. Gives: now, the mark of this page if there
-- is more, then of each message its order, and: topic's number, id, value, state, life, large body, end of lease.
--
-- The order is by due time. But what is too many to be sorted, in one slot or row, comes in the order of sending, where
-- the slot begins; and of what is leased, by id.

-- include: begin home topic drop keys message units look

local PENDING, LEASED, DEAD = 1, 2, 3
local MANY = 1000 -- leased ones: more are not sorted by due time
local name, state, limit = take_text(), take_text(), take_number()

-- A key is what entries are sorted by: stage, order, then the id as two numbers (texts compare as the server's locale has it).
local function key_of(stage, order, id)
  if id == '' then return {stage, order, -1, -1} end
  local kind, slot, n = home(id)
  return {stage, order, (byte(kind) - FIRST) * 281474976710656 + slot, n}
end
local function precedes(a, b)
  for i = 1, 4 do
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end

local from_stage, from_order, from_id = take_number(), take_number(), take_text()
local from = key_of(from_stage, from_order, from_id)

local entries, stopped = {}, nil -- stopped: a key and its mark, where looking had to end before the page was full
local function stop_at(order, id)
  local key = key_of(PENDING, order, id)
  if not stopped or precedes(key, stopped.key) then stopped = {key = key, mark = {PENDING, format('%d', order), id}} end
end

local function add_entry(stage, order, id, value, life, what)
  local key = key_of(stage, order, id)
  if precedes(from, key) then entries[#entries + 1] = {key = key, order = order, id = id, value = value, life = life, what = what} end
end

local function by_key(a, b) return precedes(a.key, b.key) end
local function wanted(due) return state == '' or (state == 'ready') == (due <= now) end

-- Keep what fits the page and one more; gives the order of the last when the page is full.
local function cut()
  if #entries <= limit then return math.huge end
  table.sort(entries, by_key)
  for i = #entries, limit + 2, -1 do entries[i] = nil end
  return entries[limit + 1].key[1] == PENDING and entries[limit + 1].order or math.huge
end

-- A slot or row of which only a part is read: from behind the mark on, as many as the page takes.
local function add_crowd(topic, at, order)
  local first, count = at.first, 0
  if from_stage == PENDING and from_order > order then return end
  if from_stage == PENDING and from_order == order and from_id ~= '' and sub(from_id, 1, 1) == at.kind then
    local _, slot, n = home(from_id)
    first = math.max(first, (at.slot and 0 or slot * ROW) + n + 1)
  end
  local function seen(id, value)
    if wanted(born_due(id, value)) then
      add_entry(PENDING, order, id, value, nil, 'far')
      count = count + 1
    end
    return count <= limit
  end
  local got
  if at.slot then
    got = each_in(topic, at.kind, at.slot, first, at.births, seen)
  else
    got = each_ready(topic, {kind = at.kind, first = first, births = at.births}, seen)
  end
  if got < at.births and count <= limit then
    local last = got - 1
    stop_at(order, id_of(at.kind, at.slot or floor(last / ROW), at.slot and last or last % ROW))
  end
end

local function add_slot(topic, at)
  if (state == 'ready' and at.start > now) or (state == 'scheduled' and at.stop <= now) then return end
  if at.births - at.first > CROWD then return add_crowd(topic, at, at.start) end
  if from_stage == PENDING and at.stop <= from_order then return end
  local before_it = #entries
  local got = each_in(topic, at.kind, at.slot, at.first, at.births, function(id, value)
    local due = born_due(id, value)
    if wanted(due) then add_entry(PENDING, due, id, value, nil, 'far') end
  end)
  if got < at.births then -- all of it, or none
    for i = #entries, before_it + 1, -1 do entries[i] = nil end
    stop_at(at.start, '')
  end
end

local function add_row(topic, level)
  local row = ready_of(topic, level)
  if row.count == 0 or state == 'scheduled' then return end
  if row.births - row.first > CROWD then return add_crowd(topic, row, 0) end
  each_ready(topic, row, function(id, value) add_entry(PENDING, born_due(id, value), id, value, nil, 'far') end)
end

-- The rank in a zset of what comes behind the mark.
local function rank_behind(key)
  if from_stage ~= PENDING then return 0 end
  local low = call('ZCOUNT', key, '-inf', '(' .. format('%d', from_order))
  local high = call('ZCOUNT', key, '-inf', format('%d', from_order))
  while low < high do
    local middle = floor((low + high) / 2)
    local id = call('ZRANGE', key, middle, middle)[1]
    if precedes(from, key_of(PENDING, from_order, id)) then high = middle else low = middle + 1 end
  end
  return low
end

local function add_near(topic, level)
  local key = topic.prefix .. 'due' .. level
  local at = rank_behind(key)
  if state == 'scheduled' then at = math.max(at, call('ZCOUNT', key, '-inf', now)) end
  local near = call('ZRANGE', key, at, at + limit, 'WITHSCORES')
  for i = 1, #near, 2 do
    if wanted(tonumber(near[i + 1])) then add_entry(PENDING, tonumber(near[i + 1]), near[i], nil, nil, 'near') end
  end
end

local function pending(topic)
  for level = 0, 2 do add_row(topic, level) end -- first, as they have no end to be skipped by
  for level = 0, 2 do
    add_near(topic, level)
    local bound = cut()
    for _, at in ipairs(slots_of(topic, level)) do
      if at.start > bound then break end
      if looked >= LOOKS then
        stop_at(at.start, '')
        break
      end
      add_slot(topic, at)
      bound = cut()
    end
  end
end

local function leased(topic)
  local found = {}
  for _, request in ipairs(call('ZRANGE', P .. 'lease', 0, -1)) do
    local unit = unit_of(request)
    for place = 1, unit and #unit.states or 0 do
      local digits, id = parts_of(full_at(unit, place))
      if unit.states[place] ~= ENDED and digits == topic.digits then found[#found + 1] = id end
    end
  end
  for _, id in ipairs(found) do
    if #found > MANY then
      add_entry(LEASED, 0, id, nil, nil, 'leased')
    else
      local value, life = read(topic, id), life_of(topic, id)
      if value then add_entry(LEASED, life and life.due or born_due(id, value), id, value, life, 'leased') end
    end
  end
end

local function dead(topic)
  local low = from_stage == DEAD and format('%d', from_order) or '-inf'
  local found = call('ZRANGEBYSCORE', topic.prefix .. 'dead', low, '+inf', 'WITHSCORES', 'LIMIT', 0, 2 * limit + 1000)
  for i = 1, #found, 2 do add_entry(DEAD, tonumber(found[i + 1]), found[i], nil, nil, 'dead') end
end

local topic = find_topic(name)
local reply = {format('%d', now), {}}
if not topic then return reply end
if from_stage <= PENDING and (state == '' or state == 'scheduled' or state == 'ready') then pending(topic) end
if not stopped and #entries <= limit then
  if from_stage <= LEASED and (state == '' or state == 'leased') then leased(topic) end
  if state == '' or state == 'dead' then dead(topic) end
end
table.sort(entries, by_key)
while stopped and #entries > 0 and precedes(stopped.key, entries[#entries].key) do entries[#entries] = nil end
local mark = stopped and stopped.mark
if #entries > limit then
  local last = entries[limit]
  mark = {last.key[1], format('%d', last.order), last.id}
end
reply[2] = mark or {}
for i = 1, math.min(limit, #entries) do
  local entry = entries[i]
  local value = entry.value or read(topic, entry.id)
  if value then reply[#reply + 1] = shown(topic, entry.id, value, entry.life or life_of(topic, entry.id), entry.what) end
end
return reply

-- A page of a topic. After what every script is told: topic, state ('' all), how many, and the mark of the last page:
-- stage (1 pending, 2 leased, 3 dead), its order, id; stage 0 for the first. Gives: now, the mark of this page if there
-- is more, then of each message its order, and: topic's number, id, value, state, life, large body, end of lease.
--
-- The order is by due time. But what is too many to be sorted, in one slot or row, comes in the order of sending, where
-- the slot begins; and of what is leased, by id.

-- include: begin topic drop keys message units look

local PENDING, LEASED, DEAD = 1, 2, 3
local MANY = 1000 -- leased ones: more are not sorted by due time
local name, state, limit = take_text(), take_text(), take_number()
local from_stage, from_order, from_id = take_number(), take_number(), take_text()

local function after(stage, order, id)
  if stage ~= from_stage then return stage > from_stage end
  return order > from_order or (order == from_order and id > from_id)
end

local function before(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end

local entries, stopped = {}, nil -- stopped: where looking had to end before the page was full
local function add_entry(stage, order, id, value, life, what)
  if after(stage, order, id) then entries[#entries + 1] = {stage, order, id, value, life, what} end
end

local function wanted(due) return state == '' or (state == 'ready') == (due <= now) end

-- Keep what fits the page and one more; gives the order of the last when the page is full.
local function cut()
  if #entries <= limit then return math.huge end
  table.sort(entries, before)
  for i = #entries, limit + 2, -1 do entries[i] = nil end
  return entries[limit + 1][1] == PENDING and entries[limit + 1][2] or math.huge
end

-- A slot or row of which only a part is read: from behind the mark on, as many as the page takes.
local function add_crowd(topic, at, slot, order)
  local first = at.first
  if from_stage == PENDING and from_order == order and #from_id == 9 and sub(from_id, 1, 1) == at.kind then
    local _, marked_slot, n = home(from_id)
    first = math.max(first, (at.slot and 0 or marked_slot * ROW) + n + 1)
  end
  local count = 0
  local function seen(id, value)
    if wanted(born_due(id, value)) then
      add_entry(PENDING, order, id, value, nil, 'far')
      count = count + 1
    end
    return count <= limit
  end
  if at.slot then
    local got = each_in(topic, at.kind, at.slot, first, at.births, seen)
    if got < at.births and count <= limit then stopped = {PENDING, order, pack('>c1I4I4', at.kind, at.slot, got - 1)} end
  else
    each_ready(topic, {kind = at.kind, first = first, births = at.births}, seen)
  end
end

local function add_slot(topic, at)
  if (state == 'ready' and at.start > now) or (state == 'scheduled' and at.stop <= now) then return end
  if at.count > CROWD then return add_crowd(topic, at, at.slot, at.start) end
  if from_stage == PENDING and at.stop <= from_order then return end
  each_in(topic, at.kind, at.slot, at.first, at.births, function(id, value)
    local due = born_due(id, value)
    if wanted(due) then add_entry(PENDING, due, id, value, nil, 'far') end
  end)
end

local function add_row(topic, level)
  local row = ready_of(topic, level)
  if row.count == 0 or state == 'scheduled' then return end
  if row.count > CROWD then return add_crowd(topic, row, nil, 0) end
  each_ready(topic, row, function(id, value) add_entry(PENDING, born_due(id, value), id, value, nil, 'far') end)
end

local function add_near(topic, level)
  local key, at = topic.prefix .. 'due' .. level, 0
  if from_stage == PENDING then
    local marked = call('ZSCORE', key, from_id)
    if marked and tonumber(marked) == from_order then
      at = call('ZRANK', key, from_id) + 1
    else
      at = call('ZCOUNT', key, '-inf', '(' .. format('%d', from_order))
    end
  end
  if state == 'scheduled' then at = math.max(at, call('ZCOUNT', key, '-inf', now)) end
  local near = call('ZRANGE', key, at, at + limit, 'WITHSCORES')
  for i = 1, #near, 2 do
    if wanted(tonumber(near[i + 1])) then add_entry(PENDING, tonumber(near[i + 1]), near[i], nil, nil, 'near') end
  end
end

local function pending(topic)
  for level = 0, 2 do
    add_near(topic, level)
    add_row(topic, level)
    local bound = cut()
    for _, at in ipairs(slots_of(topic, level)) do
      if at.start > bound or stopped then break end
      if looked >= LOOKS then
        stopped = {PENDING, at.start, ''}
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
      add_entry(LEASED, life and life.due or born_due(id, value), id, value, life, 'leased')
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
if not stopped then
  if from_stage <= LEASED and (state == '' or state == 'leased') then leased(topic) end
  if state == '' or state == 'dead' then dead(topic) end
end
table.sort(entries, before)
while stopped and #entries > 0 and before(stopped, entries[#entries]) do entries[#entries] = nil end
local last = stopped
if #entries > limit then last = entries[limit] end
if last then reply[2] = {last[1], format('%d', last[2]), last[3]} end
for i = 1, math.min(limit, #entries) do
  local _, order, id, value, life, what = unpack(entries[i], 1, 6)
  value, life = value or read(topic, id), life or life_of(topic, id)
  reply[#reply + 1] = shown(topic, id, value, life, what)
end
return reply

-- A page of a topic. After what every script is told: topic, state ('' all), how many, and the mark of the last page:
-- stage (1 pending, 2 leased, 3 dead), its order, id; stage 0 for the first. Gives: now, whether there is more, then
-- of each message its order, and: topic's number, id, value, state, life, large body, end of lease.

-- include: begin topic drop keys message units look

local PENDING, LEASED, DEAD = 1, 2, 3
local name, state, limit = take_text(), take_text(), take_number()
local from_stage, from_order, from_id = take_number(), take_number(), take_text()

local function after(stage, order, id)
  if stage ~= from_stage then return stage > from_stage end
  return order > from_order or (order == from_order and id > from_id)
end

local entries = {}
local function add_entry(stage, order, id, value, life, what)
  if after(stage, order, id) then entries[#entries + 1] = {stage, order, id, value, life, what} end
end

local function add_pending(topic, id, value, life, due, what)
  local ready = due <= now
  if state == '' or (state == 'ready') == ready then add_entry(PENDING, due, id, value, life, what) end
end

local function pending(topic)
  for level = 0, 2 do
    each_far(topic, level, function(id, value) add_pending(topic, id, value, nil, born_due(id, value), 'far') end)
    local low = from_stage == PENDING and format('%d', from_order) or '-inf'
    local high = '+inf'
    if state == 'ready' then high = format('%d', now) end
    if state == 'scheduled' and from_order <= now then low = '(' .. format('%d', now) end
    local near = call('ZRANGEBYSCORE', topic.prefix .. 'due' .. level, low, high, 'WITHSCORES')
    for i = 1, #near, 2 do add_pending(topic, near[i], nil, nil, tonumber(near[i + 1]), 'near') end
  end
end

local function leased(topic)
  for _, request in ipairs(call('ZRANGE', P .. 'lease', 0, -1)) do
    local unit = unit_of(request)
    for place = 1, unit and #unit.states or 0 do
      local digits, id = parts_of(full_at(unit, place))
      if unit.states[place] ~= ENDED and digits == topic.digits then
        local value, life = read(topic, id), life_of(topic, id)
        add_entry(LEASED, life and life.due or born_due(id, value), id, value, life, 'leased')
      end
    end
  end
end

local function dead(topic)
  local low = from_stage == DEAD and format('%d', from_order) or '-inf'
  local found = call('ZRANGEBYSCORE', topic.prefix .. 'dead', low, '+inf', 'WITHSCORES', 'LIMIT', 0, 2 * limit + 1000)
  for i = 1, #found, 2 do add_entry(DEAD, tonumber(found[i + 1]), found[i], nil, nil, 'dead') end
end

local topic = find_topic(name)
local reply = {format('%d', now), 0}
if not topic then return reply end
if from_stage <= PENDING and (state == '' or state == 'scheduled' or state == 'ready') then pending(topic) end
if from_stage <= LEASED and (state == '' or state == 'leased') then leased(topic) end
if state == '' or state == 'dead' then dead(topic) end
table.sort(entries, function(a, b)
  if a[1] ~= b[1] then return a[1] < b[1] end
  if a[2] ~= b[2] then return a[2] < b[2] end
  return a[3] < b[3]
end)
if #entries > limit then reply[2] = 1 end
for i = 1, math.min(limit, #entries) do
  local _, order, id, value, life, what = unpack(entries[i], 1, 6)
  value, life = value or read(topic, id), life or life_of(topic, id)
  reply[#reply + 1] = format('%d', order)
  reply[#reply + 1] = shown(topic, id, value, life, what)
end
return reply

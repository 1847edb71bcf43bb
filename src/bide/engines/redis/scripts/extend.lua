-- Let leases end later. After what every script is told: lease in ms, how many groups, and each: request, claim, topic,
-- its number, the deliveries in one string (place 2 bytes, id 9). Gives: now, a string of 0 and 1 a group.

-- include: begin topic keys message units

local function extend_group(group, asked)
  local unit, topic, results = unit_of(group.request), find_topic(group.topic), {}
  for at = 1, #group.held, 11 do
    local place, id = unpack_('>I2', group.held, at) + 1, sub(group.held, at + 2, at + 10)
    local good = unit and unit.number == group.claim and topic and topic.digits == group.digits
      and is_open(unit, place, full_of(topic, id))
    if good then
      asked[unit] = asked[unit] or {}
      asked[unit][place] = true
    end
    results[#results + 1] = good and '1' or '0'
  end
  return table.concat(results)
end

-- A unit whose open parts are all extended has one end; otherwise each part has its own.
local function extend_unit(unit, places, until_)
  local whole, parts, soonest = true, {}, until_
  for place = 1, #unit.states do
    if unit.states[place] ~= ENDED and not places[place] then whole = false end
  end
  if whole then
    if deadlines_of(unit) then call('HDEL', P .. 'until', unit.request) end
  else
    local score = tonumber(call('ZSCORE', P .. 'lease', unit.request))
    local old = deadlines_of(unit)
    for place = 1, #unit.states do
      local mine = places[place] and until_ or (old and unpack_('>I6', old, place * 6 - 5)) or score
      parts[place] = pack('>I6', mine)
      if unit.states[place] ~= ENDED then soonest = math.min(soonest, mine) end
    end
    call('HSET', P .. 'until', unit.request, table.concat(parts))
  end
  call('ZADD', P .. 'lease', 'XX', format('%.0f', soonest), unit.request)
end

local lease, groups = take_number(), {}
for g = 1, take_number() do
  local group = {request = take_text(), claim = take_text(), topic = take_text(), digits = take_text(), held = take_text()}
  if #group.held % 11 ~= 0 or #group.held > 11000 then error('BADARG held', 0) end
  groups[g] = group
end
may('HDEL', 'HSET', 'ZADD')
begin_shrinking()
local reply, asked = {format('%.0f', now)}, {}
for _, group in ipairs(groups) do reply[#reply + 1] = extend_group(group, asked) end
for unit, places in pairs(asked) do extend_unit(unit, places, now + lease) end
return reply

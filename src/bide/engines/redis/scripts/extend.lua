-- Let leases end later. After what every script is told: lease in ms, how many groups, and each: request, claim, topic,
-- its number, their places (2 bytes each), their full ids. Gives: now, a string of 0 and 1 a group.

-- include: begin once home topic units

local function extend_group(group, asked)
  local unit, topic, results = unit_of(group.request), find_topic(group.topic), {}
  local fits = unit and unit.number == group.claim and topic and topic.digits == group.digits
  for i = 1, #group.places / 2 do
    local place = unpack_('>I2', group.places, 2 * i - 1) + 1
    local good = fits and is_open(unit, place, sub(group.fulls, FULLID * (i - 1) + 1, FULLID * i))
    if good then
      asked[unit] = asked[unit] or {}
      asked[unit][place] = true
    end
    results[i] = good and '1' or '0'
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
  call('ZADD', P .. 'lease', 'XX', format('%d', soonest), unit.request)
end

local again = before()
if again then return again end
local lease, groups = take_number(), {}
for g = 1, take_number() do
  local group = {request = take_text(), claim = take_text(), topic = take_text(), digits = take_text()}
  group.places, group.fulls = take_text(), take_text()
  if #group.places > 2000 or #group.places / 2 * FULLID ~= #group.fulls then error('BADARG held', 0) end
  groups[g] = group
end
begin_shrinking()
local reply, asked = {format('%d', now)}, {}
for _, group in ipairs(groups) do reply[#reply + 1] = extend_group(group, asked) end
for unit, places in pairs(asked) do extend_unit(unit, places, now + lease) end
return answer(reply)

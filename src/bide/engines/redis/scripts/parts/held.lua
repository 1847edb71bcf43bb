-- Walking through all that is leased, claim by claim, without touching it. Those that were there all the time are met,
-- whatever comes and goes meanwhile.

local function lease_end(unit, place)
  local deadlines = deadlines_of(unit)
  if deadlines then return unpack_('>I6', deadlines, place * 6 - 5) end
  unit.ends = unit.ends or tonumber(call('ZSCORE', P .. 'lease', unit.request) or now)
  return unit.ends
end

-- Calls seen(unit) for each claim from the cursor on; gives the cursor to go on from, '0' at the end.
local function each_unit(cursor, seen)
  local count = 1
  repeat
    local found = call('HSCAN', P .. 'held', cursor, 'COUNT', count)
    cursor = found[1]
    local requests, helds, size = {}, {}, 0
    for i = 1, #found[2], 2 do
      requests[#requests + 1], helds[#helds + 1] = found[2][i], found[2][i + 1]
      size = size + #found[2][i + 1]
    end
    local opens = #requests > 0 and call('HMGET', P .. 'open', unpack(requests)) or {}
    worked = worked + 4 + 4 * #requests + size / 20
    for i, request in ipairs(requests) do
      if opens[i] and not units[request] then
        units[request] = {request = request, number = sub(helds[i], 1, 16), held = helds[i], states = {byte(opens[i], 1, -1)}}
        seen(units[request])
      end
    end
    if size < 2048 then count = math.min(count * 2, 64) end
  until cursor == '0' or tired()
  return cursor
end

-- Places of leases end, and leases with the last of them.

local function end_place(unit, place)
  unit.states[place] = ENDED
  unit.touched = true
end

local function close_units()
  for request, unit in pairs(units) do
    if unit and unit.touched then
      local left = false
      for place = 1, #unit.states do
        if unit.states[place] ~= ENDED then left = true end
      end
      if left then
        call('HSET', P .. 'open', request, string.char(unpack(unit.states)))
      else
        call('ZREM', P .. 'lease', request)
        call('HDEL', P .. 'held', request)
        call('HDEL', P .. 'open', request)
        if deadlines_of(unit) then call('HDEL', P .. 'until', request) end
      end
    end
  end
end

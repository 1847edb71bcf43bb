-- A lease is a claim: a unit, known by the request that made it.
--
-- `held` has its number (16 digits) and the full ids of what it handed out (15 bytes each), `open` a letter for each:
-- 0 it has ended, 1 it is plain, 2 something beside the body must be put in order when it ends. `lease` has the time at
-- which the unit ends; where parts of it were extended apart, `until` has a time (6 bytes) for each.

local ENDED, SIMPLE, OTHER = 48, 49, 50
local units = {}

local function unit_of(request)
  if units[request] ~= nil then return units[request] end
  local held, open = call('HGET', P .. 'held', request), call('HGET', P .. 'open', request)
  local unit = false
  if held and open then
    unit = {request = request, number = sub(held, 1, 16), held = held, states = {byte(open, 1, -1)}}
  end
  units[request] = unit
  return unit
end

local function full_at(unit, place) return sub(unit.held, 17 + FULLID * (place - 1), 16 + FULLID * place) end -- places count from 1

-- The place of a delivery in its unit, if it has not ended.
local function is_open(unit, place, full)
  return unit.states[place] and unit.states[place] ~= ENDED and full_at(unit, place) == full
end

local function deadlines_of(unit)
  if unit.deadlines == nil then unit.deadlines = call('HGET', P .. 'until', unit.request) or false end
  return unit.deadlines
end

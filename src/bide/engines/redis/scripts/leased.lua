-- Find the first leased messages of a topic behind a mark, in due order. After what every script is told: topic, how many,
-- the mark (an instant, and an id or ''), the last instant ('' for none), and the cursor of the last script ('0' at first).
-- Gives: now, the topic's number ('' when there is none), the first that this script has met (due, end of lease, id), and
-- the cursor to go on from, in a list, unless it came to the end.

-- include: begin home topic message units walk first held tell

local name, most, from, id, to, cursor = take_text(), take_number(), take_number(), take_text(), take_text(), take_text()
look_for(most, from, id, to == '' and 9007199254740991 or number(to))
local places = {} -- by id: claim, and place in it

-- Whether all of a slot is due before or behind what is looked for.
local function beside(local_id)
  local kind, slot = home(local_id)
  local length = SLOT[sort_of(kind)]
  return length and (slot * length > high or slot * length + length <= low)
end

local function find_in_unit(topic, unit)
  local mine, lives = {}, {}
  for place = 1, #unit.states do
    if unit.states[place] ~= ENDED then
      local full = full_at(unit, place)
      if sub(full, 1, TOPIC) == topic.head then
        local local_id = sub(full, TOPIC + 1)
        mine[#mine + 1] = local_id
        places[local_id] = {unit, place}
      end
    end
  end
  if #mine > 0 and has_life(topic) then lives = call('HMGET', topic.prefix .. 'life', unpack(mine)) end
  worked = worked + 4 * #mine
  for i, local_id in ipairs(mine) do
    if lives[i] then
      consider(unpack_('>I6', lives[i]), local_id)
    elseif not beside(local_id) then
      local value = read(topic, local_id)
      worked = worked + 4
      if value then consider(born_due(local_id, value), local_id) end
    end
  end
end

local topic = find_topic(name)
if not topic then return tell({format('%d', now), '', '', {}}) end
cursor = each_unit(cursor, function(unit) find_in_unit(topic, unit) end)
local found = candidates(function(local_id) return lease_end(unpack(places[local_id])) end)
return tell({format('%d', now), topic.digits, found, cursor ~= '0' and {cursor} or {}})

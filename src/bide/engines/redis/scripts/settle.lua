-- End deliveries. After what every script is told: how many dead letters a topic keeps; how many groups of done ones,
-- and each: request, claim, topic, its number, their places (2 bytes each), their full ids;
-- then how many others, each: request, claim, topic, full id, place, verdict, delay in ms, error ('-' none, '+' and it).
-- Gives: now, a string of 0 and 1 a group, a word for each of the others.

-- include: begin once home topic change drop keys message finish schedule together units close back

local function held_unit(request, claim)
  local unit = unit_of(request)
  return unit and unit.number == claim and unit or nil
end

-- Of a group that was claimed in one piece, the place before its first, if it is still written so: its ids, one by one, are
-- those that the unit has from there on. Comparing them at once costs a fraction of comparing each.
local function piece_before(unit, places, fulls)
  if places == '' then return nil end
  local before = unpack_('>I2', places)
  if sub(unit.held, 17 + FULLID * before, 16 + FULLID * before + #fulls) == fulls then return before end
end

local function end_group(group)
  local unit, topic = held_unit(group.request, group.claim), find_topic(group.topic)
  local count, simple, plain = #group.places / 2, {}, 0
  if not unit or not topic or topic.digits ~= group.digits then return string.rep('0', count) end
  local results, states, places, fulls = {}, unit.states, group.places, group.fulls
  local before = piece_before(unit, places, fulls)
  for i = 1, count do
    local high, low = byte(places, 2 * i - 1, 2 * i)
    local place, from = high * 256 + low + 1, FULLID * (i - 1)
    local state = states[place]
    if state and state ~= ENDED and (before and place == before + i or full_at(unit, place) == sub(fulls, from + 1, from + FULLID)) then
      local id = sub(fulls, from + TOPIC + 1, from + FULLID)
      if state == SIMPLE then
        plain = plain + 1
        simple[plain] = id
      else
        finish(topic, id, read(topic, id), life_of(topic, id))
      end
      states[place] = ENDED
      results[i] = '1'
    else
      results[i] = '0'
    end
  end
  unit.touched = true
  if plain > 0 then end_simple(topic, simple) end
  return table.concat(results)
end

local function end_other(other, most)
  local unit, topic = held_unit(other.request, other.claim), find_topic(other.topic)
  local digits, id = parts_of(other.full)
  if not unit or not topic or topic.digits ~= digits or not is_open(unit, other.place, other.full) then return 'lost' end
  end_place(unit, other.place)
  local value, life = read(topic, id), life_of(topic, id)
  if not value then
    finish(topic, id, nil, life)
    return 'lost'
  end
  if other.verdict == 'done' then
    finish(topic, id, value, life)
    return 'done'
  end
  if other.verdict == 'release' then
    local due = life and life.due or born_due(id, value)
    if other.delay > 0 then
      due = ceiling + other.delay
      life = life or new_life(id, value)
    end
    return come_back(topic, id, value, life, due) and 'scheduled' or 'expired'
  end
  life = give_attempt(id, value, life)
  if other.verdict == 'dead' or life.attempt >= content(id, value).attempts then
    bury(topic, id, value, life, other.error, most)
    return 'dead'
  end
  life.error = other.error
  return come_back(topic, id, value, life, other.delay > 0 and ceiling + other.delay or now) and 'scheduled' or 'expired'
end

local VERDICTS = {done = true, retry = true, release = true, dead = true}

local again = before()
if again then return again end
local most, groups, others = take_number(), {}, {}
for g = 1, take_number() do
  local group = {request = take_text(), claim = take_text(), topic = take_text(), digits = take_text()}
  group.places, group.fulls = take_text(), take_text()
  if #group.places > 2000 or #group.places / 2 * FULLID ~= #group.fulls then error('BADARG done', 0) end
  groups[g] = group
end
for o = 1, take_number() do
  local other = {request = take_text(), claim = take_text(), topic = take_text(), full = take_text(), place = take_number() + 1}
  other.verdict, other.delay, other.error = take_text(), take_number(), take_text()
  if not VERDICTS[other.verdict] or #other.full ~= FULLID then error('BADARG verdict or id', 0) end
  others[o] = other
end
begin_shrinking()
local reply = {format('%d', now)}
for _, group in ipairs(groups) do reply[#reply + 1] = end_group(group) end
for _, other in ipairs(others) do reply[#reply + 1] = end_other(other, most) end
close_units()
close_topics()
return answer(reply)

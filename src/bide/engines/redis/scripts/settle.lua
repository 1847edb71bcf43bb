-- End deliveries. After what every script is told: how many dead letters a topic keeps; how many groups of done ones,
-- and each: request, claim, topic, its number, the deliveries in one string (place 2 bytes, id 9);
-- then how many others, each: request, claim, topic, full id, place, verdict, delay in ms, error ('-' none, '+' and it).
-- Gives: now, a string of 0 and 1 a group, a word for each of the others.

-- include: begin topic keys message units back

local function held_unit(request, claim)
  local unit = unit_of(request)
  return unit and unit.number == claim and unit or nil
end

-- Plain ones end together, bucket by bucket.
local function end_simple(topic, ids)
  local counts, places = {}, {}
  for _, id in ipairs(ids) do
    local kind, slot, n = home(id)
    local bucket = bucket_of(topic, kind, slot, n)
    if not places[bucket] then counts[#counts + 1], places[bucket] = bucket, {} end
    table.insert(places[bucket], n % BUCKET)
  end
  for _, bucket in ipairs(counts) do
    local here = places[bucket]
    if #here == BUCKET then
      call('UNLINK', bucket)
    elseif not end_places(topic, bucket, #here) then
      for _, n in ipairs(here) do call('LSET', bucket, n, '') end
    end
  end
  add(topic, 'live', -#ids)
end

local function end_group(group)
  local unit, topic, results, simple = held_unit(group.request, group.claim), find_topic(group.topic), {}, {}
  for at = 1, #group.done, 11 do
    local place, id = unpack_('>I2', group.done, at) + 1, sub(group.done, at + 2, at + 10)
    local ended = false
    if unit and topic and topic.digits == group.digits and is_open(unit, place, full_of(topic, id)) then
      if unit.states[place] == SIMPLE and not (has_life(topic) and life_of(topic, id)) then
        simple[#simple + 1] = id
      else
        finish(topic, id, read(topic, id), life_of(topic, id))
      end
      end_place(unit, place)
      ended = true
    end
    results[#results + 1] = ended and '1' or '0'
  end
  if #simple > 0 then end_simple(topic, simple) end
  return table.concat(results)
end

local function end_other(other, most)
  local unit, topic = held_unit(other.request, other.claim), find_topic(other.topic)
  local digits, id = parts_of(other.full)
  if not unit or not topic or topic.digits ~= digits or not is_open(unit, other.place, other.full) then return 'lost' end
  end_place(unit, other.place)
  local value, life = read(topic, id), life_of(topic, id)
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
  local group = {request = take_text(), claim = take_text(), topic = take_text(), digits = take_text(), done = take_text()}
  if #group.done % 11 ~= 0 or #group.done > 11000 then error('BADARG done', 0) end
  groups[g] = group
end
for o = 1, take_number() do
  local other = {request = take_text(), claim = take_text(), topic = take_text(), full = take_text(), place = take_number() + 1}
  other.verdict, other.delay, other.error = take_text(), take_number(), take_text()
  if not VERDICTS[other.verdict] or #other.full ~= 14 then error('BADARG verdict or id', 0) end
  others[o] = other
end
may('HDEL', 'HINCRBY', 'HSET', 'LLEN', 'LPUSH', 'LSET', 'PEXPIRE', 'UNLINK', 'ZADD', 'ZREM')
begin_shrinking()
local reply = {format('%.0f', now)}
for _, group in ipairs(groups) do reply[#reply + 1] = end_group(group) end
for _, other in ipairs(others) do reply[#reply + 1] = end_other(other, most) end
close_units()
close_topics()
return answer(reply)

-- Deliveries end, or their leases last longer.

-- include: begin layout topics leases

local function held_claim(request, number)
  local claim = claim_of(request)
  return claim and claim.number == number and claim or nil
end

local function take_groups()
  local groups = {}
  for g = 1, take_number() do
    local group = {request = take_text(), number = take_text(), topic = take_text(), digits = take_text()}
    group.positions, group.fulls = take_text(), take_text()
    if #group.positions > 2000 or #group.positions / 2 * FULLID ~= #group.fulls then error('BADARG group', 0) end
    groups[g] = group
  end
  return groups
end

-- script: settle
-- End deliveries. After what every script is told: how many dead letters a topic keeps; how many groups of done ones,
-- and each: request, claim's number, topic, its number, their positions (2 bytes each), their full ids;
-- then how many others, each: request, claim's number, topic, full id, position, verdict, delay in ms, error (nothing, or '+' and it),
-- when the first attempt began ('': not told), the record of the attempt ('': none), for a retry the attempts that the message
-- has in all ('': as it is written).
-- The verdict `aside` is a release that comes back a millisecond before the message expires, if not sooner.
-- Gives: now, a string of 0 and 1 a group, a word for each of the others.

-- include: wake keys holding expiries finish

-- Of a group that was claimed in one piece, the position before its first, if it is still written so: its ids, one by one, are
-- those that the claim has from there on. Comparing them at once costs a fraction of comparing each.
local function piece_before(claim, positions, fulls)
  if positions == '' then return nil end
  local before = unpack_('>I2', positions)
  local from = HEAD + FULLID * before
  if sub(claim.held, from + 1, from + #fulls) == fulls then return before end
end

local function end_group(group)
  local claim, topic = held_claim(group.request, group.number), find_topic(group.topic)
  local count, simple, plain = #group.positions / 2, {}, 0
  if not claim or not topic or topic.digits ~= group.digits then return string.rep('0', count) end
  local results, states, positions, fulls = {}, claim.states, group.positions, group.fulls
  local before = piece_before(claim, positions, fulls)
  for i = 1, count do
    local high, low = byte(positions, 2 * i - 1, 2 * i)
    local position, from = high * 256 + low + 1, FULLID * (i - 1)
    local state = states[position]
    if state and state ~= ENDED and (before and position == before + i or full_at(claim, position) == sub(fulls, from + 1, from + FULLID)) then
      local id = sub(fulls, from + TOPIC + 1, from + FULLID)
      if state == SIMPLE then
        plain = plain + 1
        simple[plain] = id
      else
        finish(topic, id, read(topic, id), life_of(topic, id))
      end
      states[position] = ENDED
      results[i] = '1'
    else
      results[i] = '0'
    end
  end
  claim.touched = true
  if plain > 0 then end_simple(topic, simple) end
  return table.concat(results)
end

-- The message, from now on with so many attempts: in what the client wrote, so that every release reads them.
local function with_attempts(topic, id, value, attempts)
  local kind, slot, n = location(id)
  local at = FLAGS_AT[sort_of(kind)]
  local flags, rest = byte(value, at), at + 1
  if has(flags, FLAG.attempts) then rest = rest + 2 else flags = flags + FLAG.attempts end
  value = sub(value, 1, at - 1) .. char(flags) .. pack('>I2', attempts) .. sub(value, rest)
  call('LSET', bucket_of(topic, kind, slot, n), n % BUCKET, value)
  return value
end

local function end_other(other, most)
  local claim, topic = held_claim(other.request, other.number), find_topic(other.topic)
  local digits, id = parts_of(other.full)
  if not claim or not topic or topic.digits ~= digits or not is_open(claim, other.position, other.full) then return 'lost' end
  end_delivery(claim, other.position)
  local value, life = read(topic, id), life_of(topic, id)
  if not value then
    finish(topic, id, nil, life)
    return 'lost'
  end
  if other.verdict == 'done' then
    finish(topic, id, value, life)
    return 'done'
  end
  if other.verdict == 'release' or other.verdict == 'aside' then
    local due, latest = life and life.due or born_due(id, value), math.huge
    if other.verdict == 'aside' then
      local last = (expiry_of(id, value, life) or math.huge) - 1
      if last > now then latest = last end -- else that was its last time
    end
    if other.delay > 0 or due > latest then
      due = math.min(other.delay > 0 and ceiling + other.delay or due, latest)
      life = life or new_life(id, value)
    end
    if other.began then life = life or new_life(id, value) end
    return come_back(topic, id, value, life, due, other.began) and 'scheduled' or 'expired'
  end
  life = give_attempt(id, value, life)
  if other.trace ~= '' then keep_trace(topic, id, life, other.trace) end
  if other.verdict == 'dead' or life.attempt >= (other.attempts or content(id, value).attempts) then
    bury(topic, id, value, life, other.error, most)
    return 'dead'
  end
  if other.attempts then value = with_attempts(topic, id, value, other.attempts) end
  life.error = other.error
  local due = other.delay > 0 and ceiling + other.delay or now
  return come_back(topic, id, value, life, due, other.began) and 'scheduled' or 'expired'
end

local VERDICTS = {done = true, retry = true, release = true, aside = true, dead = true}

local again = before()
if again then return again end
local most, groups, others = take_number(), take_groups(), {}
for o = 1, take_number() do
  local other = {request = take_text(), number = take_text(), topic = take_text(), full = take_text(), position = take_number() + 1}
  other.verdict, other.delay, other.error, other.began = take_text(), take_number(), take_text(), take_text()
  other.began, other.trace, other.attempts = other.began ~= '' and number(other.began) or nil, take_text(), take_text()
  other.attempts = other.attempts ~= '' and number(other.attempts) or nil
  if (other.attempts or 0) > 65535 then error('BADARG attempts', 0) end
  if not VERDICTS[other.verdict] or #other.full ~= FULLID then error('BADARG verdict or id', 0) end
  others[o] = other
end
begin_shrinking()
local reply = {format('%d', now)}
for _, group in ipairs(groups) do reply[#reply + 1] = end_group(group) end
for _, other in ipairs(others) do reply[#reply + 1] = end_other(other, most) end
close_claims()
close_topics()
return answer(reply)

-- script: extend
-- Let leases end later. After what every script is told: lease in ms, how many groups, and each: request, claim's
-- number, topic, its number, their positions (2 bytes each), their full ids. Gives: now, a string of 0 and 1 a group.

local function extend_group(group, asked)
  local claim, topic, results = held_claim(group.request, group.number), find_topic(group.topic), {}
  local fits = claim and topic and topic.digits == group.digits
  for i = 1, #group.positions / 2 do
    local position = unpack_('>I2', group.positions, 2 * i - 1) + 1
    local good = fits and is_open(claim, position, sub(group.fulls, FULLID * (i - 1) + 1, FULLID * i))
    if good then
      asked[claim] = asked[claim] or {}
      asked[claim][position] = true
    end
    results[i] = good and '1' or '0'
  end
  return table.concat(results)
end

-- A claim whose open parts are all extended has one end; otherwise each part has its own.
local function extend_claim(claim, positions, until_)
  local whole, parts, soonest = true, {}, until_
  for position = 1, #claim.states do
    if claim.states[position] ~= ENDED and not positions[position] then whole = false end
  end
  if whole then
    if deadlines_of(claim) then call('HDEL', P .. 'until', claim.request) end
  else
    local score = tonumber(call('ZSCORE', P .. 'lease', claim.request))
    local old = deadlines_of(claim)
    for position = 1, #claim.states do
      local mine = positions[position] and until_ or (old and deadline_at(old, position)) or score
      parts[position] = pack('>I6', mine)
      if claim.states[position] ~= ENDED then soonest = math.min(soonest, mine) end
    end
    call('HSET', P .. 'until', claim.request, table.concat(parts))
  end
  call('ZADD', P .. 'lease', 'XX', format('%d', soonest), claim.request)
  need_upkeep(soonest)
end

local again = before()
if again then return again end
local lease, groups = take_number(), take_groups()
begin_shrinking()
local reply, asked = {format('%d', now)}, {}
for _, group in ipairs(groups) do reply[#reply + 1] = extend_group(group, asked) end
for claim, positions in pairs(asked) do extend_claim(claim, positions, now + lease) end
return answer(reply)

-- script: tend
-- A bounded piece of upkeep. After what every script is told: the budget in messages, how many dead letters a topic
-- keeps, and for how many ms; up to when a lease has ended to be taken back ('': until now). Gives: now, and how many came
-- back, were buried of them, expired, were dropped; then whether there is more, and when gates and rates need `recall` ('' for never).

-- include: begin layout topics wake keys holding expiries finish pending leases gates

local most, dead_for, budget, until_
local returned, buried, expired, dropped = 0, 0, 0, 0
local function spare() return budget - returned - expired - dropped end

local function take_back(full, claimed)
  local RECORD = '{"attempt":%d,"began":%d}' -- of an attempt of which nobody has told the end
  local REASON = '+The lease of attempt %d, the last, ended: its worker died, froze or took too long.'
  local digits, id = parts_of(full)
  local topic = load(digits)
  local value = topic and read(topic, id)
  if topic and not value then return finish(topic, id, nil, life_of(topic, id)) end
  if not value then return end
  local life = give_attempt(id, value, life_of(topic, id))
  claimed = math.min(now, claimed)
  keep_trace(topic, id, life, format(RECORD, life.attempt, claimed))
  returned = returned + 1
  if life.attempt >= content(id, value).attempts then
    bury(topic, id, value, life, format(REASON, life.attempt), most)
    buried = buried + 1
  else
    come_back(topic, id, value, life, life.due, began_of(topic, id, life) or claimed)
  end
end

-- What of a claim has run out, of which the first part does at `ends`; it goes on with the rest, or ends.
local function end_claim(request, ends)
  local claim = claim_of(request)
  if not claim then return call('ZREM', P .. 'lease', request) end
  local deadlines, soonest = deadlines_of(claim), math.huge
  for position = 1, #claim.states do
    if claim.states[position] ~= ENDED then
      local mine = deadlines and deadline_at(deadlines, position) or ends
      if mine <= until_ and spare() > 0 then
        end_delivery(claim, position)
        take_back(full_at(claim, position), floor(tonumber(claim.number) / 1000))
      else
        soonest = math.min(soonest, mine)
      end
    end
  end
  if soonest < math.huge then call('ZADD', P .. 'lease', 'XX', format('%d', soonest), request) end
end

local function end_leases()
  local found = call('ZRANGEBYSCORE', P .. 'lease', '-inf', until_, 'WITHSCORES', 'LIMIT', 0, math.min(budget, 100))
  for i = 1, #found, 2 do
    if spare() > 0 then end_claim(found[i], tonumber(found[i + 1])) end
  end
end

local function expire()
  -- End what has expired of up to so many entries. One that ends takes its entry out; the others' entries are of no use.
  local function expire_in(key, count)
    local fulls, useless = call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, count), {}
    for _, full in ipairs(fulls) do
      local digits, id = parts_of(full)
      local topic = load(digits)
      local before = topic and topic.f.live
      if topic then living(topic, id) end
      if topic and topic.f.live < before then
        expired = expired + 1
      else
        useless[#useless + 1] = full
      end
    end
    if #useless > 0 then call('ZREM', key, unpack(useless)) end
    return #fulls
  end

  local left = math.min(spare(), 100) -- that one script ends: each may have a topic of its own
  if left <= 0 then return end
  left = left - expire_in(P .. 'exp', left)
  for _, part in ipairs(call('ZRANGEBYSCORE', P .. 'exp:next', '-inf', now, 'LIMIT', 0, left)) do
    if left == 0 then break end
    left = left - expire_in(expiries.key_of(part), left)
    expiries.note_first(part)
  end
end

-- Drop what is too old or too many in a topic. Gives when to look again: now, when the oldest will be too old, or, when
-- none is left, when to forget how many there were; nil for never.
local function drop_in(topic, cutoff)
  local key = topic.prefix .. 'dead'
  local held = call('ZCARD', key)
  if held == 0 then
    if topic.f.dropped > 0 and topic.f.last > tonumber(cutoff) then return format('%d', topic.f.last) end
    set(topic, 'dropped', 0)
    return nil
  end
  local over = math.max(call('ZCOUNT', key, '-inf', cutoff), held - most)
  local count = drop_oldest_dead(topic, math.min(over, spare()))
  dropped = dropped + count
  if count < over then return TO_DROP end
  return call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or format('%d', now)
end

local function drop_old()
  local cutoff = format('%d', now - dead_for)
  local graves = call('ZRANGEBYSCORE', P .. 'graves', '-inf', cutoff, 'LIMIT', 0, 100)
  for _, digits in ipairs(graves) do
    if spare() <= 0 then return end
    local topic = load(digits)
    local again = topic and drop_in(topic, cutoff)
    if again then call('ZADD', P .. 'graves', again, digits) else call('ZREM', P .. 'graves', digits) end
  end
end

local refused = before()
if refused then return refused end
budget, most, dead_for = take_number(), take_number(), take_number()
until_ = math.min(now, tonumber(take_text()) or now)
if budget < 1 or budget > 1000 then error('BADARG budget', 0) end
-- Whether there is something to do, and when there may be next.
local function outlook()
  local LOOK = 3600000 -- ms until the next look, if nothing is known to come sooner
  local lease, expiry = first_time(P .. 'lease'), math.min(first_time(P .. 'exp'), first_time(P .. 'exp:next'))
  local old = first_time(P .. 'graves') + dead_for
  if call('ZCARD', P .. 'retired') > 0 then return true, now end
  local due = lease <= until_ or expiry <= now or old <= now
  return due, math.min(lease, expiry, old, now + LOOK)
end

local function agenda() return call('ZRANGE', P .. 'agenda', 0, 0, 'WITHSCORES')[2] or '' end

local waiting, soonest = outlook()
if not waiting then
  if upkeep <= now or soonest < upkeep then -- else what is stored is true still
    call('HDEL', META, '-')
    call('HSET', META, 'upkeep', format('%d', soonest))
  end
  return tell({format('%d', now), 0, 0, 0, 0, 0, agenda()})
end
begin_shrinking()
end_leases()
close_claims()
expire()
drop_old()
close_topics()
free_retired()
waiting, soonest = outlook()
call('HSET', META, 'upkeep', format('%d', soonest))
return {format('%d', now), returned, buried, expired, dropped, waiting and 1 or 0, agenda()}

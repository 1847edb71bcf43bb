-- script: spend
-- Take instants at which something may begin, as core/rate.py has it. After what every script is told: how many, and of each:
-- gate, how many may begin in how many ms, how many are wanted, the holder of one that may be still to come ('' none, '+' and its
-- name), and what an older shard has told of this. Gives: now, and of each 't' and the next instant that is free, then those
-- that were granted (6 bytes each).
--
-- What has begun is in the hash `rates`: how many in how many ms, the last instant, how many of a group that is not full, how
-- many of another rate and until when they count (7 bytes each), and how many groups are full (1 byte); then the last instant of
-- each full group (6 bytes). If instants to come are kept for holders, the same follows again, as if all had come in time.
-- `kept:` has these holders by their instant. `agenda` has when nothing of a rate counts any more.
--
-- A shard that only empties itself grants nothing. It gives 's', the instant that it kept for this holder, and does not any
-- more (6 bytes, 0 for none), and what has begun there; or what an older one told. Then the caller asks the shard that goes on.

-- include: begin

local GROUPS = 100 -- that may be in one window
local LATE = 100 -- holders that did not come, whom one script forgets
local SOON, KEPT = 5000, 600000 -- as in core/rate.py
local INSTANT = 6 -- bytes
local HEAD, HEAD_FORM = 43, '>I7I7I7I7I7I7B'

-- What is in a text, from its first byte on. Raises an error if that is no rate.
local function parse(text)
  if #text < HEAD then error('BADARG rate', 0) end
  local state, groups = {}, nil
  state.most, state.window, state.last, state.filled, state.carried, state.until_, groups = unpack_(HEAD_FORM, text)
  local rest = HEAD + INSTANT * groups + 1
  if #text + 1 < rest then error('BADARG rate', 0) end
  state.ended = sub(text, HEAD + 1, rest - 1)
  if #text >= rest then state.plan = parse(sub(text, rest)) end
  return state
end

local function state_from(text, spend)
  if text ~= '' then return parse(text) end
  return {most = spend.most, window = spend.window, last = 0, filled = 0, carried = 0, until_ = 0, ended = ''}
end

local function text_of(state)
  local groups = #state.ended / INSTANT
  local head = pack(HEAD_FORM, state.most, state.window, state.last, state.filled, state.carried, state.until_, groups)
  return head .. state.ended .. (state.plan and text_of(state.plan) or '')
end

-- How many count together, and how many of these one window may hold.
local function group_of(most) return math.ceil(most / GROUPS) end
local function groups_of(most) return floor(most / group_of(most)) end

local function over(state)
  return math.max(state.last + state.window, state.until_, state.plan and over(state.plan) or 0)
end

-- To another rate: what lies in its window counts as begun with the last of it, and for no longer than that window.
local function change(state, spend)
  local window, used, from = spend.window, 0, #state.ended
  if state.last > now - window then
    while from > 0 and unpack_('>I6', state.ended, from - INSTANT + 1) > now - window do from = from - INSTANT end
    used = (#state.ended - from) / INSTANT * group_of(state.most) + state.filled
  end
  state.carried = used + (now < state.until_ and state.carried or 0)
  state.until_ = state.carried > 0 and math.max(math.min(state.until_, now + window), state.last + window) or 0
  state.ended, state.filled, state.most, state.window = '', 0, spend.most, spend.window
end

-- When a group may begin, if so many may be in one window.
local function free(state, groups, at)
  if #state.ended < INSTANT * groups then return at end
  return math.max(at, unpack_('>I6', state.ended, #state.ended - INSTANT * groups + 1) + state.window)
end

local function next_instant(state)
  local at = math.max(now, state.last)
  if state.filled > 0 then return at end
  if at < state.until_ then
    local groups = floor((state.most - state.carried) / group_of(state.most))
    if groups > 0 then
      local soon = free(state, groups, at)
      if soon < state.until_ then return soon end
    end
    at = state.until_
  end
  return free(state, groups_of(state.most), at)
end

local function add(state, at)
  state.last, state.filled = at, state.filled + 1
  if state.filled == group_of(state.most) then
    state.ended, state.filled = sub(state.ended .. pack('>I6', at), -INSTANT * groups_of(state.most)), 0
  end
end

local function take(state, want, ahead)
  local taken, at = {}, next_instant(state)
  while #taken < want and (at <= now or ahead) do
    taken[#taken + 1] = at
    add(state, at)
    state.changed = true
    at = next_instant(state)
  end
  return taken, at
end

local function forget_late(key)
  local late = call('ZRANGEBYSCORE', key, '-inf', format('(%d', now - KEPT), 'LIMIT', 0, LATE)
  if #late > 0 then call('ZREM', key, unpack(late)) end
end

-- As if all who were told an instant came in time, from what has begun on.
local function plan_of(state)
  local plan = {}
  for name, value in pairs(state) do plan[name] = value end
  plan.plan, plan.tidy = nil, nil
  return plan
end

-- The instant of somebody who was told to come at `kept`, if that was so: now, or one to come.
local function instant_of(state, kept)
  local soon, planned = next_instant(state), state.plan and state.plan.last > now
  if soon <= now and (kept or not planned) then
    add(state, now)
    return now
  end
  if kept and kept > now then return kept end
  if kept and planned and now - kept <= SOON then return soon + now - kept end
  if not planned then state.plan = plan_of(state) end
  if state.plan.most ~= state.most or state.plan.window ~= state.window then change(state.plan, state) end
  return take(state.plan, 1, true)[1]
end

local function reserve(state, spend)
  local key = P .. 'kept:' .. spend.gate
  local own = tonumber(call('ZSCORE', key, spend.holder) or nil)
  local at = instant_of(state, own or (spend.kept > 0 and spend.kept or nil))
  if not state.tidy then
    forget_late(key)
    state.tidy = true
  end
  if at > now then
    if at ~= own then call('ZADD', key, format('%d', at), spend.holder) end
  elseif own then
    call('ZREM', key, spend.holder)
  end
  state.changed = true
  return {at}, next_instant(state)
end

local function grant(state, spend)
  if state.most ~= spend.most or state.window ~= spend.window then
    change(state, spend)
    state.changed = true
  end
  local taken, at
  if spend.holder then taken, at = reserve(state, spend) else taken, at = take(state, spend.want) end
  for i = 1, #taken do taken[i] = pack('>I6', taken[i]) end
  return 't' .. pack('>I6', at) .. table.concat(taken)
end

-- What an older shard tells of this, which grants nothing any more.
local function pass_on(spend, text)
  local key, kept = P .. 'kept:' .. spend.gate, spend.kept
  local own = spend.holder and call('ZSCORE', key, spend.holder)
  if own then
    call('ZREM', key, spend.holder)
    kept = number(own)
  end
  return 's' .. pack('>I6', kept) .. (text or spend.older)
end

local again = before()
if again then return again end
local spends, names, want = {}, {}, 0
for i = 1, take_number() do
  local spend = {gate = take_text(), most = take_number(), window = take_number(), want = take_number()}
  local holder, told = take_text(), take_text()
  spend.holder, spend.kept, spend.older = holder ~= '' and sub(holder, 2) or nil, 0, sub(told, INSTANT + 1)
  if told ~= '' then
    if #told < INSTANT then error('BADARG rate', 0) end
    if #spend.older > 0 then parse(spend.older) end
    spend.kept = unpack_('>I6', told)
  end
  want = want + spend.want
  if spend.most < 1 or spend.most >= 2 ^ 47 or spend.window < 1 or spend.window >= 2 ^ 47 then error('BADARG rate', 0) end
  spends[i], names[i] = spend, spend.gate
end
if #spends < 1 or #spends > 1000 or want > 2000 then error('BADARG spends', 0) end
local texts, states, results = call('HMGET', P .. 'rates', unpack(names)), {}, {}
call('HDEL', META, '-') -- who drains a full server must be let go on
begin_growing()
if retiring() then
  for i, spend in ipairs(spends) do results[i] = pass_on(spend, texts[i]) end
  return answer({format('%d', now), results})
end
for i, spend in ipairs(spends) do
  local state = states[spend.gate] or state_from(texts[i] or spend.older, spend)
  states[spend.gate] = state
  results[i] = grant(state, spend)
end
local rates, agenda = {}, {}
for name, state in pairs(states) do
  if state.changed then
    rates[#rates + 1], rates[#rates + 2] = name, text_of(state)
    agenda[#agenda + 1], agenda[#agenda + 2] = format('%d', over(state)), 'r' .. name
  end
end
if #rates > 0 then
  call('HSET', P .. 'rates', unpack(rates))
  call('ZADD', P .. 'agenda', unpack(agenda))
end
return answer({format('%d', now), results})

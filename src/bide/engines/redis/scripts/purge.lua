-- Drop messages of one state, a page at a time. After what every script is told: topic, state, how many.
-- Gives: now, how many were dropped, whether there are more.

-- include: begin topic drop keys message together units look

local again = before()
if again then return again end
local name, state, limit = take_text(), take_text(), take_number()
if limit > 1000 or not ({scheduled = 1, ready = 1, dead = 1})[state] then error('BADARG state or limit', 0) end

local count, more = 0, false
local function wanted(due) return (state == 'ready') == (due <= now) end

-- What has expired goes too, and is not counted.
local function end_one(topic, id, value, life)
  if not expired(id, value, life) then count = count + 1 end
  finish(topic, id, value, life)
end

local function purge_dead(topic)
  local ids = call('ZRANGE', topic.prefix .. 'dead', 0, limit)
  more = #ids > limit
  for i = 1, math.min(limit, #ids) do
    call('ZREM', topic.prefix .. 'dead', ids[i])
    finish(topic, ids[i], read(topic, ids[i]), life_of(topic, ids[i]))
    count = count + 1
  end
  set(topic, 'dropped', 0)
end

local function purge_near(topic, level)
  local low, high = '-inf', format('%d', now)
  if state == 'scheduled' then low, high = '(' .. high, '+inf' end
  local ids = call('ZRANGEBYSCORE', topic.prefix .. 'due' .. level, low, high, 'LIMIT', 0, limit - count + 1)
  for i = 1, #ids do
    if count >= limit then
      more = true
      return
    end
    call('ZREM', topic.prefix .. 'due' .. level, ids[i])
    end_one(topic, ids[i], read(topic, ids[i]), life_of(topic, ids[i]))
  end
end

-- Sees what of a slot or row is to go, and ends it: those that are plain together.
local function sweeper(topic)
  local simple, others = {}, {}
  local function seen(id, value)
    if not wanted(born_due(id, value)) then return true end
    if count + #simple >= limit then
      more = true
      return false
    end
    local flags = flags_of(id, value)
    if has(flags, EXPIRES) or has(flags, KEYED) or has(flags, LARGE) then
      others[#others + 1] = {id, value}
      if not expired(id, value, nil) then count = count + 1 end
    else
      simple[#simple + 1] = id
    end
    return true
  end
  local function sweep(at)
    local gone = #simple + #others
    if gone == 0 then return end
    for _, each in ipairs(others) do finish(topic, each[1], each[2], nil) end
    if #simple > 0 then end_simple(topic, simple) end
    count = count + #simple
    add(topic, 'far', -gone)
    if at.name then
      call('HINCRBY', topic.prefix .. 'slots', 'g' .. at.name, gone)
    else
      add(topic, 'g' .. at.kind, gone)
    end
  end
  return seen, sweep
end

local function purge_slot(topic, at)
  local seen, sweep = sweeper(topic)
  local got = each_in(topic, at.kind, at.slot, at.first, at.births, seen)
  sweep(at)
  if got < at.births then
    more = true
    local whole = at.start > now or at.stop <= now -- then nothing before is left, and need not be looked at again
    if whole then call('HSET', topic.prefix .. 'slots', 'x' .. at.name, got) end
  end
end

local function purge_pending(topic)
  for level = 0, 2 do
    if topic.f['l' .. level] > 0 and not more then
      purge_near(topic, level)
      if state == 'ready' and not more then
        local seen, sweep = sweeper(topic)
        local row = ready_of(topic, level)
        each_ready(topic, row, seen)
        sweep(row)
        if looked >= LOOKS then more = true end
      end
      for _, at in ipairs(more and {} or slots_of(topic, level)) do
        local fits = state == 'ready' and at.start <= now or state == 'scheduled' and at.stop > now
        if more then break end
        if fits then purge_slot(topic, at) end
      end
    end
  end
end

begin_shrinking()
local topic = find_topic(name)
if topic then
  if state == 'dead' then purge_dead(topic) else purge_pending(topic) end
  close_topics()
end
return answer({format('%d', now), count, more and 1 or 0})

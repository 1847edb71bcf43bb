-- Drop messages of one state, a page at a time. After what every script is told: topic, state, how many, and where the
-- last one stopped that found none ('' at first). Gives: now, how many were dropped, whether there are more, where it stopped.

-- include: begin home topic drop keys message together units look

local again = before()
if again then return again end
local name, state, limit, mark = take_text(), take_text(), take_number(), take_text()
if limit > 1000 or not ({scheduled = 1, ready = 1, dead = 1})[state] then error('BADARG state or limit', 0) end

local count, more = 0, false
local function wanted(due) return (state == 'ready') == (due <= now) end

-- What has expired goes too, and is not counted.
local function end_one(topic, id, value, life)
  if not value or not expired(id, value, life) then count = count + 1 end
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
  local most = limit - count + 1
  local ids = call('ZRANGEBYSCORE', topic.prefix .. 'due' .. level, low, high, 'LIMIT', 0, most)
  for i = 1, #ids do
    if count >= limit then
      more = true
      return
    end
    call('ZREM', topic.prefix .. 'due' .. level, ids[i])
    end_one(topic, ids[i], read(topic, ids[i]), life_of(topic, ids[i]))
  end
  if #ids == most then more = true end -- some had expired, and there may be others behind them
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

-- From the number `first` on; gives where it had to stop.
local function purge_slot(topic, at, first)
  local seen, sweep = sweeper(topic)
  local got = each_in(topic, at.kind, at.slot, math.max(first, at.first), at.births, seen)
  sweep(at)
  if got < at.births then
    more = true
    if first <= at.first and (at.start > now or at.stop <= now) then -- nothing before is left, nor need be looked at again
      call('HSET', topic.prefix .. 'slots', 'x' .. at.name, got)
    end
    return got
  end
end

-- Of a row nothing is left before where this stops: it is passed.
local function purge_row(topic, level)
  local row = ready_of(topic, level)
  if row.births == row.first then return end
  local seen, sweep = sweeper(topic)
  local got = each_ready(topic, row, seen)
  sweep(row)
  if got < row.births then more = true end
  local passed = got - row.first
  set(topic, 'p' .. row.kind, got)
  add(topic, 'g' .. row.kind, -passed)
end

-- Goes on where the last script stopped, of the same page: level, slot, number. Gives such a mark, or ''.
local function purge_pending(topic, mark)
  local from_level, from_name, from_n = string.match(mark, '^(%d):(%w+):(%d+)$')
  local from_start = from_name and tonumber(sub(from_name, 2), 16) * SLOT[sort_of(from_name)]
  for level = tonumber(from_level or 0), 2 do
    if topic.f['l' .. level] > 0 then
      if not from_name then
        purge_near(topic, level)
        if state == 'ready' and not more then purge_row(topic, level) end
      end
      for _, at in ipairs(more and {} or slots_of(topic, level)) do
        local fits = state == 'ready' and at.start <= now or state == 'scheduled' and at.stop > now
        if fits and (not from_start or at.start >= from_start) then
          local stopped = purge_slot(topic, at, at.name == from_name and tonumber(from_n) or 0)
          if stopped then return level .. ':' .. at.name .. ':' .. stopped end
        end
      end
      if more then return '' end
    end
    from_name, from_start = nil, nil
  end
  return ''
end

begin_shrinking()
local topic = find_topic(name)
if topic then
  if state == 'dead' then purge_dead(topic) else mark = purge_pending(topic, mark) end
  close_topics()
end
return answer({format('%d', now), count, more and 1 or 0, mark})

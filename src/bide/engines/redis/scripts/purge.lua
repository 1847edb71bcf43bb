-- script: purge
-- Drop messages of one state, a page at a time. After what every script is told: topic, state, how many, and where the last
-- one stopped ('' at first). Gives: now, how many were dropped, whether there may be more behind where it stopped,
-- and where that is; or 'free' when topics that are gone have left something, which a script with this mark frees.

-- include: begin layout topics keys holding expiries finish walk

local again = before()
if again then return again end
local name, state, limit, mark = take_text(), take_text(), take_number(), take_text()
if limit > 1000 or not ({scheduled = 1, ready = 1, dead = 1})[state] then error('BADARG state or limit', 0) end
local step, slot, n = string.match(mark, '^(%d+):(%d+):(%d+)$') -- a source of messages of one level, and where in it
step, slot, n = tonumber(step or 0), tonumber(slot or 0), tonumber(n or 0)

local HARD, LARGER = 8, 24 -- microseconds that the end of one takes which is not plain; and more when its body is large
local count, emptied = 0, {} -- messages that were dropped and had not expired; calendars of which slots were taken out
local function wanted(due) return (state == 'ready') == (due <= now) end

local function end_one(topic, id, value, life)
  if state == 'dead' or not value or not expired(id, value, life) then count = count + 1 end
  finish(topic, id, value, life)
  worked = worked + HARD + (value and has(flags_of(id, value), FLAG.large) and LARGER or 0)
end

-- Of those that are in order: true when there are more.
local function purge_sorted(topic, key, low, high)
  local most, gone = limit - count + 1, {}
  local ids = call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, most)
  for i = 1, #ids do
    if count >= limit or (tired() and i > 1) then break end
    gone[i] = ids[i]
    end_one(topic, ids[i], read(topic, ids[i]), life_of(topic, ids[i]))
  end
  if #gone > 0 then call('ZREM', key, unpack(gone)) end
  return #gone < #ids or #ids == most -- some may have expired, and others be behind them
end

-- What of a bucket goes, plain or not; `stop` is the number that it stopped at, as enough is dropped.
local function choose(topic, at, from)
  local found = {plain = {}, others = {}}
  local got = look_in(topic, at, from, function(value, number)
    if not wanted(due_in(at, value)) then return true end
    if count + #found.plain >= limit then return false end
    local id = id_of(at.kind, at.slot, number)
    local flags = flags_of(id, value)
    if has(flags, FLAG.expires) or has(flags, FLAG.keyed) or has(flags, FLAG.large) then
      found.others[#found.others + 1] = {id, value}
      if has(flags, FLAG.large) then worked = worked + LARGER end
      if not expired(id, value, nil) then count = count + 1 end
    else
      found.plain[#found.plain + 1] = id
    end
    return true
  end)
  if got < at.births then found.stop = got end
  return found
end

-- Nothing of a slot will be left: the entries of its last bucket that nobody has taken end as well.
local function end_rest(topic, at)
  at.short = (BUCKET - at.births % BUCKET) % BUCKET
  if at.short == 0 then return end
  local bucket = bucket_of(topic, at.kind, at.slot, at.births - 1)
  if call('LLEN', bucket) > 0 then end_entries(topic, bucket, at.short) end
end

-- Drop what is to go of the bucket of the number `from`. Gives where it stopped, if it did, and the number behind it.
local function purge_bucket(topic, at, from)
  local behind = math.min(at.births, from + BUCKET - from % BUCKET)
  local found = choose(topic, setmetatable({births = behind}, {__index = at}), from)
  local plain, others = found.plain, found.others
  if #plain + #others == 0 then return found.stop, behind end
  at.dropped = (at.dropped or 0) + #plain + #others
  if at.dropped == at.count then end_rest(topic, at) end
  for _, each in ipairs(others) do finish(topic, each[1], each[2], nil) end
  if #plain > 0 then end_simple(topic, plain) end
  count = count + #plain
  worked = worked + #others * HARD + #plain / 2
  add(topic, 'far', -#plain - #others)
  return found.stop, behind
end

-- All of a slot is gone. One that is over goes, too; one that is to come begins a new bucket with its next message.
local function note_empty(topic, at)
  if at.stop - 1 <= now then
    call('HDEL', topic.prefix .. 'slots', at.name, 'g' .. at.name)
    call('ZREM', topic.prefix .. 'o' .. at.kind, at.name)
    emptied[at.kind] = true
  else
    local births = at.births + at.short
    call('HSET', topic.prefix .. 'slots', at.name, births, 'g' .. at.name, births - at.first)
  end
end

-- Gives where it stopped, if it did.
local function purge_slot(topic, at, from)
  local stop
  while from < at.births and not stop do
    stop, from = purge_bucket(topic, at, from)
  end
  if at.short then
    note_empty(topic, at)
  elseif at.dropped then
    call('HINCRBY', topic.prefix .. 'slots', 'g' .. at.name, at.dropped)
  end
  worked = worked + 4
  return stop
end

local function purge_slots(topic, kind)
  local length = SLOT[sort_of(kind)]
  local present = floor(now / length)
  local first = state == 'ready' and 0 or present
  local number_in_slot
  local stopped = each_slot(topic, kind, math.max(first, slot), function(at)
    if state == 'ready' and at.slot > present then return math.huge end
    number_in_slot = purge_slot(topic, at, math.max(at.first, at.slot == slot and n or 0))
    return not number_in_slot and at.slot + 1 or nil
  end)
  if stopped then return stopped, number_in_slot or 0 end
end

-- Of a row nothing is left before where this stops: it is passed.
local function purge_row(topic, level)
  local row = ready_of(topic, level)
  local from, stop = row.first, nil
  while from < row.births and not stop do
    local part = part_at(row, from)
    local base, behind = part.slot * ROW, nil
    stop, behind = purge_bucket(topic, part, from - base)
    from = base + (stop or behind)
    row.dropped = (row.dropped or 0) + (part.dropped or 0)
  end
  set(topic, 'p' .. row.kind, from)
  add(topic, 'g' .. row.kind, (row.dropped or 0) - (from - row.first))
  if stop then return 0, 0 end
end

local STEPS = FINEST + 3 -- of a level: what is near, the ready row, each calendar

-- Gives where it stopped, if it did.
local function purge_step(topic)
  local level, which = floor(step / STEPS), step % STEPS
  if topic.f['l' .. level] == 0 then return end
  if which > 1 then return purge_slots(topic, kind_of(level, which - 2)) end
  if which == 1 then
    if state == 'ready' then return purge_row(topic, level) end
    return
  end
  local low, high = '-inf', format('%d', now)
  if state == 'scheduled' then low, high = '(' .. high, '+inf' end
  if purge_sorted(topic, topic.prefix .. 'due' .. level, low, high) then return 0, 0 end
end

local function purge_pending(topic)
  while step < 3 * STEPS do
    local stopped_slot, stopped_n = purge_step(topic)
    if stopped_slot then return format('%d:%d:%d', step, stopped_slot, stopped_n) end
    step, slot, n = step + 1, 0, 0
    if tired() and step < 3 * STEPS then return format('%d:0:0', step) end
  end
end

begin_shrinking()
if mark == 'free' then return answer({format('%d', now), 0, 0, free_retired() and 'free' or ''}) end
local topic, stopped = find_topic(name), nil
if topic and state == 'dead' then
  if purge_sorted(topic, topic.prefix .. 'dead', '-inf', '+inf') then stopped = '0:0:0' end
  set(topic, 'dropped', 0)
elseif topic then
  stopped = purge_pending(topic)
  for kind in pairs(emptied) do
    local first = call('ZRANGE', topic.prefix .. 'o' .. kind, 0, 0, 'WITHSCORES')[2]
    set_first(topic, kind, tonumber(first))
  end
end
close_topics()
if not stopped and call('ZCARD', P .. 'retired') > 0 then mark = 'free' else mark = stopped or '' end
return answer({format('%d', now), count, stopped and 1 or 0, mark})

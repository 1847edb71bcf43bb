-- Find the first messages of a topic behind a mark, in order. After what every script is told: the time to look at ('' for
-- now), topic, state ('' for scheduled and ready), how many, the mark (an instant; and the id behind which those of that
-- instant are, or ''), the last instant ('' for none), and where the last script stopped: source, slot, number (0 at first).
-- Gives: now, the topic's number ('' when there is none), the first that this script has met (instant, 0, id), and where it
-- stopped, unless it came to the end. Sources are what is near, the ready row and each calendar, of each level.

-- include: begin home topic message walk first tell

local as_of, name, state = take_text(), take_text(), take_text()
as_of = as_of == '' and now or number(as_of)
local most, from, id, to = take_number(), take_number(), take_text(), take_text()
local source, slot, n = take_number(), take_number(), take_number()
to = to == '' and 9007199254740991 or number(to)
if state == 'ready' then to = math.min(to, as_of) end
if state == 'scheduled' and from <= as_of then from, id = as_of + 1, '' end
look_for(most, from, id, to)

-- The rank in a zset of what comes behind the mark.
local function rank_behind(key)
  local first = call('ZCOUNT', key, '-inf', '(' .. format('%d', low))
  if not after then return first end
  local last = call('ZCOUNT', key, '-inf', format('%d', low))
  while first < last do
    local middle = floor((first + last) / 2)
    if follows(call('ZRANGE', key, middle, middle)[1]) then last = middle else first = middle + 1 end
  end
  return first
end

local function find_sorted(key)
  local at = rank_behind(key)
  local found = call('ZRANGE', key, at, at + limit - 1, 'WITHSCORES')
  worked = worked + 20 + #found
  for i = 1, #found, 2 do consider(tonumber(found[i + 1]), found[i]) end
end

-- A number of the row with nothing before it that is behind the mark.
local function seek(topic, row)
  if after and after.kind == row.kind then
    local _, high_part, low_part = home(after.id)
    return math.max(row.first, high_part * ROW + low_part + 1)
  end
  local first, last = row.first, row.births
  while low > 0 and last - first > 4 * BUCKET do
    local middle, due, at = floor((first + last) / 2), nil, nil
    local some = {kind = row.kind, births = math.min(last, middle + 4 * BUCKET), gone = row.gone}
    look_along(topic, some, middle, function(value, place)
      due, at = due_from(0, READY, value), place
      return false
    end)
    if due and due < low then first = at + 1 else last = middle end
  end
  return first
end

-- A row is in due order. These give where they stopped, or nothing.
local function find_in_row(topic, level)
  local row, count = ready_of(topic, level), 0
  if row.count == 0 then return end
  if n == 0 then
    n = seek(topic, row)
    looks = 0 -- so that one bucket at least is read from there
  end
  local over = false
  local got = look_along(topic, row, math.max(n, row.first), function(value, at)
    local due = due_from(0, READY, value)
    if consider(due, id_of(row.kind, floor(at / ROW), at % ROW)) then count = count + 1 end
    over = count >= limit or due > high
    return not over
  end)
  if not over and got < row.births then return 0, got end
end

-- All of a slot of one millisecond is due at once, in the order of sending: only those are read that are wanted.
local function find_in_slot(topic, at, from_n)
  local single, count, over = at.stop - at.start == 1, 0, false
  if single and after and at.start == low then
    local head = rank(id_of(at.kind, at.slot, 0))
    if after.head > head then return at.births end
    if after.head == head then from_n = math.max(from_n, after.n + 1) end
  end
  local got = look_in(topic, at, from_n, function(value, place)
    local due = due_in(at, value)
    if due >= low and due <= high and consider(due, id_of(at.kind, at.slot, place)) then count = count + 1 end
    over = single and count >= limit
    return not over
  end)
  return over and at.births or got
end

local function find_in_slots(topic, kind)
  local length, number_in_slot = SLOT[sort_of(kind)], n
  local stopped = each_slot(topic, kind, math.max(slot, floor(low / length)), function(at)
    if at.start > high then return math.huge end
    local got = find_in_slot(topic, at, math.max(at.first, at.slot == slot and n or 0))
    if got < at.births then
      number_in_slot = got
      return nil
    end
    cut()
    number_in_slot = 0
    return at.slot + 1
  end)
  if stopped then return stopped, number_in_slot end
end

local SOURCES = FINEST + 3 -- of a level

local function find_in_source(topic)
  local level, which = floor(source / SOURCES), source % SOURCES
  if topic.f['l' .. level] == 0 then return end
  if which == 0 then return find_sorted(topic.prefix .. 'due' .. level) end
  if which > 1 then return find_in_slots(topic, kind_of(level, which - 2)) end
  if state ~= 'scheduled' then return find_in_row(topic, level) end
end

local function find_pending(topic)
  while source < 3 * SOURCES do
    local stopped_slot, stopped_n = find_in_source(topic)
    cut()
    if stopped_slot then return {source, format('%d', stopped_slot), stopped_n} end
    source, slot, n = source + 1, 0, 0
    if tired() and source < 3 * SOURCES then return {source, 0, 0} end
  end
  return {}
end

local topic = find_topic(name)
if not topic then return tell({format('%d', now), '', '', {}}) end
local stopped = {}
if state == 'dead' then find_sorted(topic.prefix .. 'dead') else stopped = find_pending(topic) end
return tell({format('%d', now), topic.digits, candidates(), stopped})

-- script: stats
-- Counts. After what every script is told: the time to count at ('' for now); start, end and parts of a window (parts 0
-- for none); where the last script stopped in the first topic ('' when it did not); then topics. Gives: now; of each topic
-- that was counted nothing, or: scheduled, ready, leased, dead, dropped, paused, the oldest that is ready and the next that
-- is not ('' for none), and the window's counts; and where it stopped in the next one ('' when it has not begun it).
--
-- A slot is counted by its number of messages where all of them are on one side of all that is asked about: only those
-- are read that time, or an end of a part of the window, divides, and the first of each calendar that is due or is to come.

-- include: begin layout topics walk

local as_of = take_text()
as_of = as_of == '' and now or number(as_of)
local start, stop, parts = take_number(), take_number(), take_number()
local mark = take_text()

local function part_of(due)
  if parts == 0 or due < start or due >= stop then return nil end
  local product = (due - start) * parts
  return (product - math.fmod(product, stop - start)) / (stop - start) + 1
end

-- The first instant of a part.
local function border(part)
  local product = (part - 1) * (stop - start)
  local rest = math.fmod(product, parts)
  return format('%d', start + (product - rest) / parts + (rest > 0 and 1 or 0))
end

-- `step` is one source of messages of one level; `from`, `n` and `ahead` tell how far it is counted: from which slot and
-- number, and whether what is needed at least has been seen.
local function new_counts()
  local counts = {step = 0, from = 0, n = 0, ahead = 0, ready = 0, oldest = NEVER, next = NEVER, timeline = {}}
  for i = 1, parts do counts.timeline[i] = 0 end
  return counts
end

local function count(counts, due, times)
  if due <= as_of then
    counts.ready = counts.ready + times
    counts.oldest = math.min(counts.oldest, due)
  else
    counts.next = math.min(counts.next, due)
  end
  local part = part_of(due)
  if part then counts.timeline[part] = counts.timeline[part] + times end
end

-- Whether a slot need not be read to be counted.
local function plain(counts, at)
  local last = at.stop - 1
  if at.start == last then return true end
  if at.start <= as_of and last > as_of then return false end
  if last <= as_of and at.start < counts.oldest then return false end
  if at.start > as_of and at.start < counts.next then return false end
  local part = part_of(at.start)
  if parts == 0 or part and part == part_of(last) then return true end
  return last < start or at.start >= stop
end

local function count_slots(topic, kind, counts)
  local length = SLOT[sort_of(kind)]
  local present, low, high = floor(as_of / length), floor(start / length), parts > 0 and floor((stop - 1) / length) or -1
  local stopped = each_slot(topic, kind, counts.from, function(at)
    if at.slot > present and counts.ahead > 0 and (at.slot > high or at.slot < low) then
      return at.slot > high and math.huge or low -- of what is to come, the first and the window are enough
    end
    local n = at.slot == counts.from and counts.n or 0
    if n == 0 and plain(counts, at) then
      count(counts, at.start, at.count)
    else
      local got = look_in(topic, at, math.max(n, at.first), function(value) count(counts, due_in(at, value), 1) end)
      if got < at.births then
        counts.from, counts.n = at.slot, got
        return nil
      end
    end
    counts.n = 0
    if at.slot > present then counts.ahead = 1 end
    return at.slot + 1
  end)
  if stopped and stopped ~= counts.from then counts.from, counts.n = stopped, 0 end
  return not stopped
end

local function count_near(topic, level, counts)
  local key = topic.prefix .. 'due' .. level
  if counts.ahead == 0 then
    local ready = call('ZCOUNT', key, '-inf', format('%d', as_of))
    counts.ready = counts.ready + ready
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    if ready > 0 then counts.oldest = math.min(counts.oldest, tonumber(first)) end
    local later = call('ZRANGEBYSCORE', key, '(' .. format('%d', as_of), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if later then counts.next = math.min(counts.next, tonumber(later)) end
    counts.ahead, worked = 1, worked + 6
    if parts == 0 or call('ZCOUNT', key, format('%d', start), '(' .. format('%d', stop)) == 0 then return true end
  end
  for i = counts.n + 1, parts do
    if tired() and passed > 0 then return false end
    counts.timeline[i] = counts.timeline[i] + call('ZCOUNT', key, border(i), '(' .. border(i + 1))
    counts.n, passed, worked = i, passed + 1, worked + 2
  end
  return true
end

-- What a window has of the row is its end, which is read backwards.
local function count_window(topic, row, counts)
  local upper = counts.from
  while upper > row.first do
    if tired() and looks > 0 then return false end
    local low = math.max(row.first, upper - 1 - (upper - 1) % BUCKET)
    local part, before_it = part_at(row, low), false
    part.births = math.min(part.births, upper - part.slot * ROW)
    look_in(topic, part, low % ROW, function(value)
      local due = due_in(part, value)
      local window_part = part_of(due)
      if window_part then counts.timeline[window_part] = counts.timeline[window_part] + 1 end
      before_it = before_it or due < start
    end)
    upper, counts.from = low, low
    if before_it then return true end
  end
  return true
end

local function count_row(topic, level, counts)
  local row = ready_of(topic, level)
  if counts.ahead == 0 then -- all of it is due, and the first of it is the oldest
    if row.count == 0 then return true end
    local oldest
    local got = look_along(topic, row, math.max(counts.n, row.first), function(value)
      oldest = due_from(0, READY, value)
      return false
    end)
    if not oldest and got < row.births then
      counts.n = got
      return false
    end
    counts.oldest = math.min(counts.oldest, oldest or NEVER)
    counts.ready = counts.ready + row.count
    counts.ahead, counts.from = 1, row.births
  end
  return parts == 0 or start > as_of or count_window(topic, row, counts)
end

local STEPS = FINEST + 3 -- of a level: each calendar, what is near, the ready row

local function count_step(topic, counts)
  local level, sort = floor(counts.step / STEPS), counts.step % STEPS
  if topic.f['l' .. level] == 0 then return true end
  worked = worked + 4
  if sort <= FINEST then return count_slots(topic, kind_of(level, sort), counts) end
  if sort == FINEST + 1 then return count_near(topic, level, counts) end
  return count_row(topic, level, counts)
end

local function summary(topic, counts)
  local near, dead = 0, call('ZCARD', topic.prefix .. 'dead')
  for level = 0, 2 do near = near + call('ZCARD', topic.prefix .. 'due' .. level) end
  local pending = topic.f.far + near
  local ready = math.min(counts.ready, pending)
  return {pending - ready, ready, topic.f.live - pending - dead, dead, topic.f.dropped, topic.f.paused,
          counts.oldest < NEVER and format('%d', counts.oldest) or '',
          counts.next < NEVER and format('%d', counts.next) or '', counts.timeline}
end

-- Nil when it had to stop.
local function stats(topic, counts)
  while counts.step < 3 * STEPS do
    if not count_step(topic, counts) then return nil end
    counts.step, counts.from, counts.n, counts.ahead = counts.step + 1, 0, 0, 0
  end
  return summary(topic, counts)
end

local found, counts = {}, nil
if mark ~= '' then counts = cmsgpack.unpack(mark) end
mark = ''
while NEXT < #ARGV and mark == '' and not (tired() and #found > 0) do
  local topic = find_topic(take_text())
  if topic then
    counts = counts or new_counts()
    local counted = stats(topic, counts)
    if counted then found[#found + 1] = counted else mark = cmsgpack.pack(counts) end
  else
    found[#found + 1] = {}
  end
  counts = nil
  worked = worked + 50
end
return tell({format('%d', now), found, mark})

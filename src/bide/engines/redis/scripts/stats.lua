-- Counts. After what every script is told: start, end and parts of a window (parts 0 for none), then topics. Gives: now,
-- then of each topic nothing, or: scheduled, ready, leased, dead, dropped, paused, the oldest that is ready and the next
-- that is not ('' for none), and the window's counts.

-- include: begin topic drop keys message units look

local start, stop, parts = take_number(), take_number(), take_number()

local function part_of(due)
  if parts > 0 and due >= start and due < stop then return floor((due - start) * parts / (stop - start)) + 1 end
end

local function new_counts()
  local counts = {scheduled = 0, ready = 0, oldest = math.huge, next = math.huge, line = {}}
  for i = 1, parts do counts.line[i] = 0 end
  return counts
end

local function count(counts, due, times)
  if due <= now then
    counts.ready = counts.ready + times
    counts.oldest = math.min(counts.oldest, due)
  else
    counts.scheduled = counts.scheduled + times
    counts.next = math.min(counts.next, due)
  end
  local part = part_of(due)
  if part then counts.line[part] = counts.line[part] + times end
end

-- Whether a slot need not be read to be counted: all of it is on one side of every border that is asked about.
local function plain(counts, at)
  if at.start <= now and at.stop > now then return false end
  if at.stop <= now and at.start < counts.oldest then return false end
  if at.start > now and at.start < counts.next then return false end
  local first, last = part_of(at.start), part_of(at.stop - 1)
  if parts == 0 or first and first == last then return true end
  return at.stop <= start or at.start >= stop
end

-- What can't be read all is counted where it begins, or where the part that was read has ended.
local function count_slots(topic, level, counts)
  for _, at in ipairs(slots_of(topic, level)) do
    local left = at.count
    if not plain(counts, at) then
      each_in(topic, at.kind, at.slot, at.first, at.births, function(id, value)
        count(counts, born_due(id, value), 1)
        left = left - 1
      end)
    end
    if left > 0 then count(counts, at.stop <= now and at.stop - 1 or at.start, left) end
  end
end

local function count_near(topic, level, counts)
  local key = topic.prefix .. 'due' .. level
  local ready = call('ZCOUNT', key, '-inf', now)
  counts.ready = counts.ready + ready
  counts.scheduled = counts.scheduled + call('ZCARD', key) - ready
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if ready > 0 then counts.oldest = math.min(counts.oldest, tonumber(first)) end
  local later = call('ZRANGEBYSCORE', key, '(' .. format('%d', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if later then counts.next = math.min(counts.next, tonumber(later)) end
  for i = 1, parts do
    local low = math.ceil(start + (i - 1) * (stop - start) / parts)
    local high = math.ceil(start + i * (stop - start) / parts)
    counts.line[i] = counts.line[i] + call('ZCOUNT', key, format('%d', low), '(' .. format('%d', high))
  end
end

local function count_ready(topic, level, counts)
  local row = ready_of(topic, level)
  local left, last = row.count, now
  if left == 0 then return end
  each_ready(topic, row, function(id, value)
    last = born_due(id, value)
    count(counts, last, 1)
    left = left - 1
    return parts > 0 -- without a window the first is enough
  end)
  if left > 0 then count(counts, last, left) end
end

local function stats(name)
  local topic = find_topic(name)
  if not topic then return {} end
  local counts, near = new_counts(), 0
  for level = 0, 2 do
    if topic.f['l' .. level] > 0 then
      count_near(topic, level, counts)
      count_ready(topic, level, counts)
      count_slots(topic, level, counts)
      near = near + call('ZCARD', topic.prefix .. 'due' .. level)
    end
  end
  local dead = call('ZCARD', topic.prefix .. 'dead')
  local leased = topic.f.live - topic.f.far - near - dead
  return {counts.scheduled, counts.ready, leased, dead, topic.f.dropped, topic.f.paused,
          counts.oldest < math.huge and format('%d', counts.oldest) or '',
          counts.next < math.huge and format('%d', counts.next) or '', counts.line}
end

local reply = {format('%d', now)}
while NEXT < #ARGV do reply[#reply + 1] = stats(take_text()) end
return reply

-- New messages are checked and placed.

-- part: early
-- A message of its own, as most are sent: when it is due it goes to the ready row, else to the coarsest calendar that has room, down
-- to that of minutes. What needs more is in `place`: a script that has placed its message here does not come so far.

-- Messages in a slot: of what is far more in a topic that has many, as they are spread over fewer lists then. A minute has room
-- for more, four times SOME: the rest goes to slots of two seconds, of which a batch of a thousand would need some 500, and cost
-- three times as much. But not for those that are `named`, as the index of keys tells apart no more than twice SOME of a slot.
local function room_of(topic, sort, named)
  if sort < MINUTE then return math.min(SOME, math.max(FEW, floor(topic.f.live / 32))) end
  return sort == MINUTE and not named and 4 * SOME or ROOM[sort]
end

-- Append values to the buckets of a slot or row, from the number `first` on.
local function append(topic, name, first, values)
  local done, count, key = 0, #values, topic.prefix .. 'b' .. name
  while done < count do
    local n = first + done
    local room = math.min(BUCKET - n % BUCKET, count - done)
    call('RPUSH', key .. format(':%x', floor(n / BUCKET)), unpack(values, done + 1, done + room))
    done = done + room
  end
end

local function place_in_row(topic, kind, indexes, dues, blobs, ids)
  local first, done, count = topic.f['b' .. kind], 0, #indexes
  while done < count do -- up to where the numbers of a slot end
    local n = first + done
    local slot, at, room = floor(n / ROW), n % ROW, math.min(count - done, ROW - n % ROW)
    local values, head, due, packed = {}, pack('>c1I6', kind, slot), nil, nil
    for k = 1, room do
      local i = indexes[done + k]
      if dues[i] ~= due then due, packed = dues[i], pack('>I6', dues[i]) end
      values[k] = SALT .. packed .. blobs[i]
      ids[i] = head .. pack('>I3', at + k - 1)
    end
    append(topic, slot_name(kind, slot), at, values)
    done = done + room
  end
  set(topic, 'b' .. kind, first + count)
end

-- Slots that are new to their calendar: {slot, name, slot, name …}, of which `next` is the first; wake somebody when it is the
-- calendar's next.
local function begin_slots(topic, kind, new, next)
  local key = topic.prefix .. 'o' .. kind
  for i = 1, #new, 1000 do call('ZADD', key, unpack(new, i, math.min(i + 999, #new))) end
  local first = first_slot(topic, kind)
  if not first or next < first then
    set_first(topic, kind, next)
    wake(topic, next * SLOT[sort_of(kind)])
  end
end

-- What `place` does of one message, with fewer steps. Gives the id; nothing is done where that takes more.
local function place_early(topic, level, due, blob, named)
  if wall < now then return nil end -- it may wait for the clock
  if due <= now then
    local ids = {}
    use_level(topic, level)
    add(topic, 'live', 1)
    add(topic, 'far', 1)
    place_in_row(topic, kind_of(level, READY), {1}, {due}, {blob}, ids)
    wake(topic, now)
    return ids[1]
  end
  local sorts, names = {}, {}
  for sort = COARSE, MINUTE do
    local kind, slot = kind_of(level, sort), floor(due / SLOT[sort])
    if slot > topic.f['c' .. kind] then sorts[#sorts + 1], names[#names + 1] = sort, slot_name(kind, slot) end
  end
  local births = #names > 0 and call('HMGET', topic.prefix .. 'slots', unpack(names)) or {}
  for i, sort in ipairs(sorts) do
    local name, n, after = names[i], tonumber(births[i] or 0), due % SLOT[sort]
    if n < room_of(topic, sort, named) then
      local kind, start = sub(name, 1, 1), due - after
      local slot = start / SLOT[sort]
      use_level(topic, level)
      add(topic, 'live', 1)
      add(topic, 'far', 1)
      call('RPUSH', topic.prefix .. 'b' .. name .. format(':%x', floor(n / BUCKET)), SALT .. pack(FORM[sort], after) .. blob)
      call('HSET', topic.prefix .. 'slots', name, format('%d', n + 1))
      if n == 0 then
        begin_slots(topic, kind, {slot, name}, slot)
      elseif start <= now then
        wake(topic, start)
      end
      return id_of(kind, slot, n)
    end
  end
end

-- part: plain
-- Plain messages, as put is told of them: sections of one topic and level each.

-- flags (attempts, headers; then for an instant), and the least bytes they need
local PLAIN = {[0] = 1, [1] = 3, [8] = 5, [9] = 7, [32] = 1, [33] = 3, [40] = 5, [41] = 7}

local function take_sections(longest)
  local sections = {}
  for s = 1, take_number() do
    local section = {topic = take_text(), level = take_number(), dues = {}, blobs = {}}
    if section.level > 2 then error('BADARG level', 0) end
    local dues, blobs, when, due, instant = section.dues, section.blobs, nil, nil, nil
    for i = 1, take_number() do
      local asked, blob = take_text(), take_text()
      local flags = byte(blob)
      if asked ~= when then
        when = asked
        due, instant = due_of(asked, longest, now, ceiling, wall)
      end
      if #blob < (PLAIN[flags] or math.huge) then error('BADARG content', 0) end
      if flags >= FLAG.instant and not instant then blob = char(flags - FLAG.instant) .. sub(blob, 2) end -- it is past, so for now
      dues[i], blobs[i] = due, blob
    end
    sections[s] = section
  end
  return sections
end

-- part: place
-- New messages are placed: those that are due in the ready row, those in an unopened slot in the coarsest calendar
-- that has room, the rest in the near row and at once in the zset.

-- How many messages of a sealed slot may go to the zset yet, and not to finer slots: so many as the slot would have room
-- for. Slots of seconds are worth their keys only where there are many messages.
local function near_left(topic, kind, sort, named)
  return sort < MINUTE and 0 or math.max(0, room_of(topic, sort, named) - topic.f['d' .. kind])
end

local function group_of(kind, slot, first) return {kind = kind, slot = slot, name = slot_name(kind, slot), first = first, count = 0} end

-- Of the calendars of which one slot has all messages from `low` to `high`, that slot: {kind, slot, name, first number, and
-- how many are to come}; by sort.
local function shared_slots(topic, level, low, high)
  local shared, names = {}, {}
  for sort = COARSE, FINEST do
    local slot = floor(low / SLOT[sort])
    if slot ~= floor(high / SLOT[sort]) then break end
    shared[sort] = group_of(kind_of(level, sort), slot, 0)
    names[sort + 1] = shared[sort].name
  end
  local births = #names > 0 and call('HMGET', topic.prefix .. 'slots', unpack(names)) or {}
  for b = 1, #births do shared[b - 1].first = tonumber(births[b] or 0) end
  return shared
end

-- The same of a calendar of which several slots have messages of `waiting`: by place in `waiting`, or nothing when that slot
-- was entered, and is sealed.
local function slots_for(topic, kind, dues, waiting)
  local length, cursor, count = SLOT[sort_of(kind)], topic.f['c' .. kind], 0
  local groups, names, known, found = {}, {}, {}, {}
  for w = 1, #waiting do
    local slot = floor(dues[waiting[w]] / length)
    local group = known[slot]
    if not group and slot > cursor then
      count, group = count + 1, group_of(kind, slot, 0)
      known[slot], groups[count], names[count] = group, group, group.name
    end
    found[w] = group or false
  end
  for g = 1, count, 1000 do
    local births = call('HMGET', topic.prefix .. 'slots', unpack(names, g, math.min(g + 999, count)))
    for b = 1, #births do
      if births[b] then groups[g + b - 1].first = tonumber(births[b]) end
    end
  end
  return found
end

-- All of `waiting` go to the one slot as far as it has room, or as far as they may to the zset when it is sealed; gives the rest.
local function fill_shared(topic, group, waiting, chosen, near, named)
  local kind, count = group.kind, #waiting
  local sort, sealed = sort_of(kind), group.slot <= topic.f['c' .. kind]
  local taken = math.min(count, math.max(0, sealed and near_left(topic, kind, sort, named) or room_of(topic, sort, named) - group.first))
  if taken == 0 then return waiting end
  if sealed then
    for w = 1, taken do near[#near + 1] = waiting[w] end
    add(topic, 'd' .. kind, taken)
  else
    for w = 1, taken do group[w] = waiting[w] end
    group.count, chosen[#chosen + 1] = taken, group
  end
  return {unpack(waiting, taken + 1, count)}
end

-- Whether a calendar seems to have no room for any of `waiting`: in a topic that has many, the slots of a few of them tell,
-- if each of these has a slot of its own. Then the batch has many slots there, and to ask for all of them is dear. The few are
-- drawn: a caller may send messages of different kinds by turns, of which one kind only goes to slots that are full.
local SAMPLE = 16
local function seems_full(topic, kind, room, dues, waiting)
  local length, step = SLOT[sort_of(kind)], floor(#waiting / SAMPLE)
  if step == 0 or topic.f.live < SAMPLE * room then return false end
  local names, seen = {}, {}
  for look = 1, SAMPLE do
    local slot = floor(dues[waiting[look * step - math.random(0, step - 1)]] / length)
    if seen[slot] or slot <= topic.f['c' .. kind] then return false end
    names[look], seen[slot] = slot_name(kind, slot), true
  end
  for _, births in ipairs(call('HMGET', topic.prefix .. 'slots', unpack(names))) do
    if tonumber(births or 0) < room then return false end
  end
  return true
end

local function fill_slots(topic, level, sort, dues, waiting, chosen, near, named)
  local kind, rest, resting, room = kind_of(level, sort), {}, 0, room_of(topic, sort, named)
  if seems_full(topic, kind, room, dues, waiting) then return waiting end
  local found, left, sealed = slots_for(topic, kind, dues, waiting), near_left(topic, kind, sort, named), 0
  for w = 1, #waiting do
    local group = found[w]
    local k = group and group.count + 1
    if k and k + group.first <= room then
      if k == 1 then chosen[#chosen + 1] = group end
      group[k], group.count = waiting[w], k
    elseif not k and sealed < left then
      sealed = sealed + 1
      near[#near + 1] = waiting[w]
    else
      resting = resting + 1
      rest[resting] = waiting[w]
    end
  end
  if sealed > 0 then add(topic, 'd' .. kind, sealed) end
  return rest
end

-- The slots of messages that are not due; and those that have none. `low` and `high` are the ends of their times.
local function choose_slots(topic, level, dues, waiting, low, high, named)
  local chosen, near = {}, {}
  if #waiting == 0 then return chosen, near end
  local shared = shared_slots(topic, level, low, high)
  for sort = COARSE, FINEST do
    if shared[sort] then
      waiting = fill_shared(topic, shared[sort], waiting, chosen, near, named)
    else
      waiting = fill_slots(topic, level, sort, dues, waiting, chosen, near, named)
    end
    if #waiting == 0 then return chosen, near end
  end
  for w = 1, #waiting do near[#near + 1] = waiting[w] end
  return chosen, near
end

local function place_in_slot(topic, group, dues, blobs, ids)
  local kind, slot, count = group.kind, group.slot, group.count
  local sort = sort_of(kind)
  local start, form = slot * SLOT[sort], FORM[sort]
  if count == 1 then -- as most are of a batch that is spread over weeks
    local i, n = group[1], group.first
    call('RPUSH', bucket_of(topic, kind, slot, n), SALT .. pack(form, dues[i] - start) .. blobs[i])
    ids[i] = id_of(kind, slot, n)
    return
  end
  local values, head, due, packed = {}, pack('>c1I6', kind, slot), nil, nil
  for k = 1, count do
    local i = group[k]
    if dues[i] ~= due then due, packed = dues[i], pack(form, dues[i] - start) end
    values[k] = SALT .. packed .. blobs[i]
    ids[i] = head .. pack('>I3', group.first + k - 1)
  end
  append(topic, group.name, group.first, values)
end

-- Note how many came into each slot, and which slots are new; wake somebody when nobody looked into one that has begun.
local function note_slots(topic, groups)
  local counts, begun, total = {}, {}, 0
  for _, group in ipairs(groups) do
    local kind = group.kind
    counts[#counts + 1], counts[#counts + 2] = group.name, group.first + group.count
    total = total + group.count
    if group.first == 0 then
      local new = begun[kind] or {next = math.huge}
      begun[kind] = new
      new[#new + 1], new[#new + 2] = group.slot, group.name
      new.next = math.min(new.next, group.slot)
    elseif group.slot * SLOT[sort_of(kind)] <= now then
      wake(topic, group.slot * SLOT[sort_of(kind)])
    end
  end
  for i = 1, #counts, 1000 do call('HSET', topic.prefix .. 'slots', unpack(counts, i, math.min(i + 999, #counts))) end
  add(topic, 'far', total)
  for kind, new in pairs(begun) do begin_slots(topic, kind, new, new.next) end
end

-- Instants that wait for the clock are near. Each has a life, which is as long as if it was due by engine time.
local function begin_waiting(topic, waiting, level, dues, ids)
  for i in pairs(waiting) do
    local life = {due = dues[i], since = reached_at(dues[i]), attempt = 0, level = level, marks = BY_CLOCK, error = ''}
    call('HSET', topic.prefix .. 'life', ids[i], life_text(life))
    topic.lives = true
  end
end

-- `named`: some have keys.
local function place(topic, level, dues, blobs, named)
  local ids, ready, waiting, total, low, high = {}, {}, {}, 0, math.huge, 0
  local again = {} -- when those are looked at that wait for the clock
  for i = 1, #dues do
    local due = dues[i]
    if waits(due, byte(blobs[i])) then
      again[i] = look_again_at(due)
    elseif due <= now then
      ready[#ready + 1] = i
    else
      total = total + 1
      waiting[total] = i
      if due < low then low = due end
      if due > high then high = due end
    end
  end
  use_level(topic, level)
  add(topic, 'live', #dues)
  if #ready > 0 then
    place_in_row(topic, kind_of(level, READY), ready, dues, blobs, ids)
    add(topic, 'far', #ready)
    wake(topic, now)
  end
  local groups, near = choose_slots(topic, level, dues, waiting, low, high, named)
  for i in pairs(again) do near[#near + 1] = i end
  if #groups > 0 then
    for g = 1, #groups do place_in_slot(topic, groups[g], dues, blobs, ids) end
    note_slots(topic, groups)
  end
  if #near > 0 then
    place_in_row(topic, kind_of(level, NEAR), near, dues, blobs, ids)
    local key, scores, earliest = topic.prefix .. 'due' .. level, {}, math.huge
    for k, i in ipairs(near) do
      local due = again[i] or dues[i]
      scores[2 * k - 1], scores[2 * k] = due, ids[i]
      earliest = math.min(earliest, due)
    end
    begin_waiting(topic, again, level, dues, ids)
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    call('ZADD', key, unpack(scores))
    if not first or earliest < tonumber(first) then wake(topic, earliest) end
  end
  return ids
end

-- One message of its own: what `place` does, mostly with fewer steps.
local function place_one(topic, level, due, blob, named)
  return place_early(topic, level, due, blob, named) or place(topic, level, {due}, {blob}, named)[1]
end

-- Gives of each section of put the topic's number and the ids.
local function place_sections(sections)
  local placed = {}
  for _, section in ipairs(sections) do
    local topic, dues, blobs = make_topic(section.topic), section.dues, section.blobs
    local ids = #dues == 1 and place_one(topic, section.level, dues[1], blobs[1])
      or table.concat(place(topic, section.level, dues, blobs))
    placed[#placed + 1], placed[#placed + 2] = topic.digits, ids
  end
  return placed
end

-- part: accept
-- The run of a script that accepts messages of which some are not plain.

if #SALT ~= 2 then error('BADARG salt', 0) end
local again = before()
if again then return again end
local longest = take_number()
local sections, others = take_sections(longest), take_others(longest)
begin_growing()
local placed = place_sections(sections)
learn_operations(others)
learn_keys(others)
for at, new in ipairs(others) do put_other(at, new) end
settle_created()
for i = 1, #noted, 1000 do call('HSET', of_epoch('ops', 0), unpack(noted, i, math.min(i + 999, #noted))) end
if #noted > 0 then call('PEXPIRE', of_epoch('ops', 0), LIFE) end
close_topics()
return answer({format('%d', now), format('%d', ceiling), SALT, placed, told_of(results), wall < now and format('%d', wall) or nil})

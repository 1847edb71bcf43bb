-- New messages find their homes: those that are due in the ready row, those in an unopened slot in the coarsest calendar
-- that has room, the rest in the near row and at once in the zset.

-- The slots of one calendar that messages of `waiting` fall into, {kind, slot, name, first number}; and by place in
-- `waiting` which of them, or nothing when that slot was entered, and is sealed.
local function slots_for(topic, kind, dues, waiting)
  local length, cursor = SLOT[sort_of(kind)], topic.f['c' .. kind]
  local groups, names, known, found = {}, {}, {}, {}
  for w = 1, #waiting do
    local slot = floor(dues[waiting[w]] / length)
    local group = known[slot]
    if not group and slot > cursor then
      local g = #groups + 1
      names[g] = slot_name(kind, slot)
      group = {kind = kind, slot = slot, name = names[g], first = 0}
      known[slot], groups[g] = group, group
    end
    found[w] = group or false
  end
  for g = 1, #groups, 1000 do
    local births = call('HMGET', topic.prefix .. 'slots', unpack(names, g, math.min(g + 999, #names)))
    for b = 1, #births do
      if births[b] then groups[g + b - 1].first = tonumber(births[b]) end
    end
  end
  return found
end

-- How many messages of a sealed slot may go to the zset yet, and not to finer slots: so many as the slot would have room
-- for. Slots of seconds are worth their keys only where there are many messages.
local function near_left(topic, kind, sort)
  return sort < MINUTE and 0 or math.max(0, ROOM[sort] - topic.f['d' .. kind])
end

-- The homes of messages that are not due, by slot: {kind, slot, name, first number, indexes}; and those that have none.
local function choose_slots(topic, level, dues, waiting)
  local chosen, near = {}, {}
  for sort = COARSE, FINEST do
    if #waiting == 0 then break end
    local kind, rest, room = kind_of(level, sort), {}, ROOM[sort]
    local found, left, most = slots_for(topic, kind, dues, waiting), near_left(topic, kind, sort), #near
    for w = 1, #waiting do
      local group = found[w]
      if group and #group + group.first < room then
        local k = #group + 1
        if k == 1 then chosen[#chosen + 1] = group end
        group[k] = waiting[w]
      elseif not group and #near - most < left then
        near[#near + 1] = waiting[w]
      else
        rest[#rest + 1] = waiting[w]
      end
    end
    if #near > most then add(topic, 'd' .. kind, #near - most) end
    waiting = rest
  end
  for w = 1, #waiting do near[#near + 1] = waiting[w] end
  return chosen, near
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

local function place_in_slot(topic, group, dues, blobs, ids)
  local kind, slot, count = group.kind, group.slot, #group
  local sort = sort_of(kind)
  local start, form = slot * SLOT[sort], FORM[sort]
  if count == 1 then -- as most are of a batch that is spread over weeks
    local i, n = group[1], group.first
    call('RPUSH', bucket_of(topic, kind, slot, n), SALT .. pack(form, dues[i] - start) .. blobs[i])
    ids[i] = id_of(kind, slot, n)
    return
  end
  local values, head = {}, pack('>c1I6', kind, slot)
  for k = 1, count do
    local i = group[k]
    values[k] = SALT .. pack(form, dues[i] - start) .. blobs[i]
    ids[i] = head .. pack('>I3', group.first + k - 1)
  end
  append(topic, group.name, group.first, values)
end

-- Note how many came into each slot, and which slots are new; wake somebody when one is the next, or nobody looked into it.
local function note_slots(topic, groups)
  local counts, begun, total = {}, {}, 0
  for _, group in ipairs(groups) do
    local kind = group.kind
    counts[#counts + 1], counts[#counts + 2] = group.name, group.first + #group
    total = total + #group
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
  for kind, new in pairs(begun) do
    local key = topic.prefix .. 'o' .. kind
    for i = 1, #new, 1000 do call('ZADD', key, unpack(new, i, math.min(i + 999, #new))) end
    local first = first_slot(topic, kind)
    if not first or new.next < first then
      set_first(topic, kind, new.next)
      wake(topic, new.next * SLOT[sort_of(kind)])
    end
  end
end

local function place_in_row(topic, kind, indexes, dues, blobs, ids)
  local first, values = topic.f['b' .. kind], {}
  for k, i in ipairs(indexes) do
    values[k] = SALT .. pack('>I6', dues[i]) .. blobs[i]
    local n = first + k - 1
    ids[i] = id_of(kind, floor(n / ROW), n % ROW)
  end
  local done = 0
  while done < #values do -- up to where the numbers of a slot end
    local n = first + done
    local part = {unpack(values, done + 1, math.min(#values, done + ROW - n % ROW))}
    append(topic, slot_name(kind, floor(n / ROW)), n % ROW, part)
    done = done + #part
  end
  set(topic, 'b' .. kind, first + #values)
end

local function place(topic, level, dues, blobs)
  local ids, ready, waiting = {}, {}, {}
  for i = 1, #dues do
    if dues[i] <= now then ready[#ready + 1] = i else waiting[#waiting + 1] = i end
  end
  use_level(topic, level)
  add(topic, 'live', #dues)
  if #ready > 0 then
    place_in_row(topic, kind_of(level, READY), ready, dues, blobs, ids)
    add(topic, 'far', #ready)
    wake(topic, now)
  end
  local groups, near = choose_slots(topic, level, dues, waiting)
  if #groups > 0 then
    for g = 1, #groups do place_in_slot(topic, groups[g], dues, blobs, ids) end
    note_slots(topic, groups)
  end
  if #near > 0 then
    place_in_row(topic, kind_of(level, NEAR), near, dues, blobs, ids)
    local key, scores, earliest = topic.prefix .. 'due' .. level, {}, dues[near[1]]
    for k, i in ipairs(near) do
      scores[2 * k - 1], scores[2 * k] = dues[i], ids[i]
      earliest = math.min(earliest, dues[i])
    end
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    call('ZADD', key, unpack(scores))
    if not first or earliest < tonumber(first) then wake(topic, earliest) end
  end
  return ids
end

-- One message of its own: what `place` does, with fewer steps.
local function place_one(topic, level, due, blob)
  if due > now then
    local names, slots = {}, {}
    for sort = COARSE, MINUTE do
      slots[sort] = floor(due / SLOT[sort])
      names[sort + 1] = slot_name(kind_of(level, sort), slots[sort])
    end
    local births = call('HMGET', topic.prefix .. 'slots', unpack(names))
    for sort = COARSE, MINUTE do
      local kind, slot, n = kind_of(level, sort), slots[sort], tonumber(births[sort + 1] or 0)
      if slot > topic.f['c' .. kind] and n < ROOM[sort] then
        use_level(topic, level)
        add(topic, 'live', 1)
        local group = {kind = kind, slot = slot, name = names[sort + 1], first = n, 1}
        local value = SALT .. pack(FORM[sort], due - slot * SLOT[sort]) .. blob
        call('RPUSH', bucket_of(topic, kind, slot, n), value)
        note_slots(topic, {group})
        return id_of(kind, slot, n)
      end
    end
  end
  return place(topic, level, {due}, {blob})[1]
end

-- New messages find their homes: those that are due in the ready row, those in an unopened slot in the coarsest calendar
-- that has room, the rest in the near row and at once in the zset.

-- The messages of `waiting` by the slots of one calendar; not those whose slot was entered.
local function by_slot(topic, kind, dues, waiting)
  local length, cursor = SLOT[SORT_OF[kind]], topic.f['c' .. kind]
  local groups, names, mine = {}, {}, {}
  for w = 1, #waiting do
    local i = waiting[w]
    local slot = floor(dues[i] / length)
    local group = mine[slot]
    if group then
      group[#group + 1] = i
    elseif slot > cursor then
      local name = kind .. format('%08x', slot)
      group = {i, kind = kind, slot = slot, name = name}
      mine[slot], groups[#groups + 1], names[#names + 1] = group, group, name
    end
  end
  for g = 1, #groups, 1000 do
    local births = call('HMGET', topic.prefix .. 'slots', unpack(names, g, math.min(g + 999, #names)))
    for b = 1, #births do groups[g + b - 1].first = tonumber(births[b] or 0) end
  end
  return groups
end

-- The homes of messages that are not due, by slot: {kind, slot, name, first number, indexes}; and those that have none.
local function choose_slots(topic, level, dues, waiting)
  local chosen = {}
  for sort = COARSE, FINE do
    if #waiting == 0 then break end
    local placed, count = {}, 0
    for _, group in ipairs(by_slot(topic, kind_of(level, sort), dues, waiting)) do
      local most = sort == FINE and #group or math.min(#group, ROOM - group.first)
      for k = #group, math.max(0, most) + 1, -1 do group[k] = nil end
      if most > 0 then
        chosen[#chosen + 1] = group
        count = count + most
        for k = 1, most do placed[group[k]] = true end
      end
    end
    if count > 0 then
      local rest = {}
      if count < #waiting then
        for w = 1, #waiting do
          if not placed[waiting[w]] then rest[#rest + 1] = waiting[w] end
        end
      end
      waiting = rest
    end
  end
  return chosen, waiting
end

-- Append values to the buckets of a slot or row, from the number `first` on.
local function append(topic, name, first, values)
  local done, count, key = 0, #values, topic.prefix .. 'b' .. name
  while done < count do
    local n = first + done
    local room = math.min(BUCKET - n % BUCKET, count - done)
    call('RPUSH', key .. format('%x', floor(n / BUCKET)), unpack(values, done + 1, done + room))
    done = done + room
  end
end

local function place_in_slot(topic, group, dues, blobs, ids)
  local kind, slot = group.kind, group.slot
  local start, form, values, head = slot * SLOT[SORT_OF[kind]], FORM[SORT_OF[kind]], {}, pack('>c1I4', kind, slot)
  for k = 1, #group do
    local i = group[k]
    values[k] = SALT .. pack(form, dues[i] - start) .. blobs[i]
    ids[i] = head .. pack('>I4', group.first + k - 1)
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
    elseif group.slot * SLOT[SORT_OF[kind]] <= now then
      wake(topic)
    end
  end
  for i = 1, #counts, 1000 do call('HSET', topic.prefix .. 'slots', unpack(counts, i, math.min(i + 999, #counts))) end
  add(topic, 'far', total)
  for kind, new in pairs(begun) do
    local key = topic.prefix .. 'o' .. kind
    for i = 1, #new, 1000 do call('ZADD', key, unpack(new, i, math.min(i + 999, #new))) end
    if tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) == new.next then wake(topic) end
  end
end

local function place_in_row(topic, kind, indexes, dues, blobs, ids)
  local first, values = topic.f['b' .. kind], {}
  for k, i in ipairs(indexes) do
    values[k] = SALT .. pack('>I6', dues[i]) .. blobs[i]
    local n = first + k - 1
    ids[i] = pack('>c1I4I4', kind, floor(n / ROW), n % ROW)
  end
  local done = 0
  while done < #values do -- up to where the numbers of a slot end
    local n = first + done
    local part = {unpack(values, done + 1, math.min(#values, done + ROW - n % ROW))}
    append(topic, kind .. format('%08x', floor(n / ROW)), n % ROW, part)
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
    wake(topic)
  end
  local groups, near = choose_slots(topic, level, dues, waiting)
  if #groups > 0 then
    for _, group in ipairs(groups) do place_in_slot(topic, group, dues, blobs, ids) end
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
    if not first or earliest < tonumber(first) then wake(topic) end
  end
  return ids
end

-- One message of its own: what `place` does, with fewer steps.
local function place_one(topic, level, due, blob)
  if due > now then
    local names, slots = {}, {}
    for sort = COARSE, FINE do
      slots[sort] = floor(due / SLOT[sort])
      names[sort + 1] = kind_of(level, sort) .. format('%08x', slots[sort])
    end
    local births = call('HMGET', topic.prefix .. 'slots', unpack(names))
    for sort = COARSE, FINE do
      local kind, slot, n = kind_of(level, sort), slots[sort], tonumber(births[sort + 1] or 0)
      if slot > topic.f['c' .. kind] and (sort == FINE or n < ROOM) then
        use_level(topic, level)
        add(topic, 'live', 1)
        local group = {kind = kind, slot = slot, name = names[sort + 1], first = n, 1}
        local value = SALT .. pack(FORM[sort], due - slot * SLOT[sort]) .. blob
        call('RPUSH', topic.prefix .. 'b' .. group.name .. format('%x', floor(n / BUCKET)), value)
        note_slots(topic, {group})
        return pack('>c1I4I4', kind, slot, n)
      end
    end
  end
  return place(topic, level, {due}, {blob})[1]
end

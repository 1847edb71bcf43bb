-- New messages find their homes: those that are due in the ready row, those in an unopened slot in the coarsest calendar
-- that has room, the rest in the near row and at once in the zset.

-- The homes of messages that are not due, by slot: {kind, slot, first number, indexes}; and those that have none.
local function choose_slots(topic, level, dues, waiting)
  local groups = {}
  for sort = COARSE, FINE do
    if #waiting == 0 then break end
    local kind, length = kind_of(level, sort), SLOT[sort]
    local cursor, names, at, births = topic.f['c' .. kind], {}, {}, {}
    for _, i in ipairs(waiting) do
      local slot = floor(dues[i] / length)
      if slot > cursor and not at[slot] then
        names[#names + 1] = kind .. format('%08x', slot)
        at[slot] = #names
      end
    end
    if #names > 0 then
      births = call('HMGET', topic.prefix .. 'slots', unpack(names))
      local rest, mine = {}, {}
      for _, i in ipairs(waiting) do
        local slot = floor(dues[i] / length)
        local group = mine[slot]
        if at[slot] and not group then
          group = {kind = kind, slot = slot, name = names[at[slot]], first = tonumber(births[at[slot]] or 0)}
          mine[slot] = group
        end
        if group and (sort == FINE or group.first + #group < ROOM) then
          if #group == 0 then groups[#groups + 1] = group end
          group[#group + 1] = i
        else
          rest[#rest + 1] = i
        end
      end
      waiting = rest
    end
  end
  return groups, waiting
end

-- Append values to the buckets of a slot or row, from the number `first` on.
local function append(topic, kind, slot, first, values)
  local done, count = 0, #values
  while done < count do
    local n = first + done
    local room = math.min(BUCKET - n % BUCKET, count - done)
    call('RPUSH', bucket_of(topic, kind, slot, n), unpack(values, done + 1, done + room))
    done = done + room
  end
end

local function place_in_slot(topic, level, group, dues, blobs, ids)
  local kind, slot, sort = group.kind, group.slot, sort_of(group.kind)
  local start, form, values = slot * SLOT[sort], '>I' .. WIDTH[sort], {}
  for k = 1, #group do
    local i = group[k]
    values[k] = SALT .. pack(form, dues[i] - start) .. blobs[i]
    ids[i] = pack('>c1I4I4', kind, slot, group.first + k - 1)
  end
  append(topic, kind, slot, group.first, values)
  call('HINCRBY', topic.prefix .. 'slots', group.name, #group)
  add(topic, 'far', #group)
  if group.first == 0 then
    call('ZADD', topic.prefix .. 'o' .. kind, slot, group.name)
    if call('ZRANGE', topic.prefix .. 'o' .. kind, 0, 0)[1] == group.name then wake(topic) end
  end
  if start <= now then wake(topic) end -- nobody has looked into it
end

local function place_in_row(topic, kind, indexes, dues, blobs, ids)
  local first, values = topic.f['b' .. kind], {}
  for k, i in ipairs(indexes) do
    values[k] = SALT .. pack('>I6', dues[i]) .. blobs[i]
    ids[i] = row_id(kind, first + k - 1)
  end
  local done = 0
  while done < #values do -- up to where the numbers of a slot end
    local n = first + done
    local part = {unpack(values, done + 1, math.min(#values, done + ROW - n % ROW))}
    append(topic, kind, floor(n / ROW), n % ROW, part)
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
  for _, group in ipairs(groups) do place_in_slot(topic, level, group, dues, blobs, ids) end
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

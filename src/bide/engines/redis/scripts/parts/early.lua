-- A message of its own, as most are sent: when it is due it goes to the ready row, else to the coarsest calendar that has room, down
-- to that of minutes. What needs more is in place.lua: a script that has placed its message here does not come so far.

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

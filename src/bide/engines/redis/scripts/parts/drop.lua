-- An empty topic is removed with all its keys. Of a slot only the last bucket can be left. If there are very many slots, they
-- are freed later, a part at a time.

local FREED = 1000 -- slots that one script frees

local function last_buckets(prefix, names, births)
  local found = {}
  for i = 1, #names do
    if births[i] then found[#found + 1] = prefix .. 'b' .. names[i] .. format(':%x', floor((births[i] - 1) / BUCKET)) end
  end
  return found
end

drop = function(topic)
  local doomed, slots = {'h', 'life', 'dead', 'ended'}, topic.prefix .. 'slots'
  for i, name in ipairs(doomed) do doomed[i] = topic.prefix .. name end
  doomed[#doomed + 1] = P .. 'w:' .. topic.name
  for level = 0, 2 do
    doomed[#doomed + 1] = topic.prefix .. 'due' .. level
    for _, sort in ipairs({NEAR, READY}) do
      local births = topic.f['b' .. kind_of(level, sort)]
      if births > 0 then doomed[#doomed + 1] = bucket_of(topic, kind_of(level, sort), floor((births - 1) / ROW), (births - 1) % ROW) end
    end
  end
  if call('HLEN', slots) > FREED then
    call('ZADD', P .. 'retired', format('%d', now), topic.digits)
  else
    local flat, names, births = call('HGETALL', slots), {}, {}
    for i = 1, #flat, 2 do
      if is_kind(flat[i]) then -- fields that begin with g count what is gone
        names[#names + 1], births[#births + 1] = flat[i], flat[i + 1]
      end
    end
    for _, bucket in ipairs(last_buckets(topic.prefix, names, births)) do doomed[#doomed + 1] = bucket end
    for level = 0, 2 do
      for sort = COARSE, FINEST do doomed[#doomed + 1] = topic.prefix .. 'o' .. kind_of(level, sort) end
    end
    doomed[#doomed + 1] = slots
  end
  for i = 1, #doomed, 1000 do call('UNLINK', unpack(doomed, i, math.min(i + 999, #doomed))) end
  call('HDEL', P .. 'topics', topic.name)
  call('ZREM', P .. 'graves', topic.digits)
  call('HDEL', P .. 'timers', topic.name)
  topics[topic.digits] = false
end

-- Removed topics whose slots are not all freed.

-- Free some slots of a removed topic; true when none is left.
local function free_slots(prefix)
  for level = 0, 2 do
    for sort = COARSE, FINEST do
      local key = prefix .. 'o' .. kind_of(level, sort)
      local names = call('ZRANGE', key, 0, FREED - 1)
      if #names > 0 then
        local doomed = last_buckets(prefix, names, call('HMGET', prefix .. 'slots', unpack(names)))
        if #doomed > 0 then call('UNLINK', unpack(doomed)) end
        call('ZREM', key, unpack(names))
        return false
      end
    end
  end
  call('UNLINK', prefix .. 'slots')
  return true
end

-- Free some slots; gives whether there are more.
local function free_retired()
  local digits = call('ZRANGE', P .. 'retired', 0, 0)[1]
  if digits and free_slots(P .. digits .. ':') then call('ZREM', P .. 'retired', digits) end
  return call('ZCARD', P .. 'retired') > 0
end

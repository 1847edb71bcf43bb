-- Topics that are gone and have left slots, which go a part at a time.

-- Free some slots of a topic that is gone; true when none is left.
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

-- Topics that are gone and have left slots; gives whether there are any.
local function free_retired()
  local digits = call('ZRANGE', P .. 'retired', 0, 0)[1]
  if digits and free_slots(P .. digits .. ':') then call('ZREM', P .. 'retired', digits) end
  return call('ZCARD', P .. 'retired') > 0
end

-- A topic that has nothing left goes, with all its keys: of a slot only the last bucket can be there still.

drop = function(topic)
  local doomed = {'h', 'slots', 'life', 'dead', 'ended'}
  for i, name in ipairs(doomed) do doomed[i] = topic.prefix .. name end
  doomed[#doomed + 1] = P .. 'w:' .. topic.name
  for level = 0, 2 do
    doomed[#doomed + 1] = topic.prefix .. 'due' .. level
    for sort = COARSE, FINEST do doomed[#doomed + 1] = topic.prefix .. 'o' .. kind_of(level, sort) end
    for _, sort in ipairs({NEAR, READY}) do
      local births = topic.f['b' .. kind_of(level, sort)]
      if births > 0 then doomed[#doomed + 1] = bucket_of(topic, kind_of(level, sort), floor((births - 1) / ROW), (births - 1) % ROW) end
    end
  end
  local slots = call('HGETALL', topic.prefix .. 'slots')
  for i = 1, #slots, 2 do
    if is_kind(slots[i]) then -- the others, with a g or x before, tell of those that are gone
      doomed[#doomed + 1] = topic.prefix .. 'b' .. slots[i] .. format(':%x', floor((slots[i + 1] - 1) / BUCKET))
    end
  end
  for i = 1, #doomed, 1000 do call('UNLINK', unpack(doomed, i, math.min(i + 999, #doomed))) end
  call('HDEL', P .. 'topics', topic.name)
  call('ZREM', P .. 'graves', topic.digits)
  call('HDEL', P .. 'timers', topic.name)
  topics[topic.digits] = false
end


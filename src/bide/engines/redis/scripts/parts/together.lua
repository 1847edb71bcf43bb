-- Plain ones end together, bucket by bucket. All bytes of an id but the last, and a quarter of that, name its bucket.
local function end_simple(topic, ids)
  local heads, groups, group, last, from = {}, {}, nil, nil, 0
  for i = 1, #ids do
    local id = ids[i]
    local begins, low = sub(id, 1, ID - 1), byte(id, ID)
    if begins ~= last or low < from or low >= from + BUCKET then -- most follow one of the same bucket
      last, from = begins, low - low % BUCKET
      local head = begins .. from
      group = groups[head]
      if not group then
        group = {id = id, count = 0}
        groups[head], heads[#heads + 1] = group, head
      end
    end
    group.count = group.count + 1
    group[group.count] = low - from
  end
  for _, head in ipairs(heads) do
    local group = groups[head]
    local bucket = bucket_of(topic, home(group.id))
    if group.count == BUCKET then
      call('UNLINK', bucket)
    elseif call('LLEN', bucket) > 0 and not end_places(topic, bucket, group.count) then
      for i = 1, group.count do call('LSET', bucket, group[i], '') end
    end
  end
  add(topic, 'live', -#ids)
end

-- Plain ones end together, bucket by bucket. All bytes of an id but the last, and a quarter of that, name its bucket.
local function end_simple(topic, ids)
  local heads, groups = {}, {}
  for i = 1, #ids do
    local id = ids[i]
    local low = byte(id, ID)
    local head = sub(id, 1, ID - 1) .. floor(low / BUCKET)
    local group = groups[head]
    if not group then
      group = {id = id}
      groups[head], heads[#heads + 1] = group, head
    end
    group[#group + 1] = low % BUCKET
  end
  for _, head in ipairs(heads) do
    local group = groups[head]
    local bucket = bucket_of(topic, home(group.id))
    if #group == BUCKET then
      call('UNLINK', bucket)
    elseif call('LLEN', bucket) > 0 and not end_places(topic, bucket, #group) then
      for i = 1, #group do call('LSET', bucket, group[i], '') end
    end
  end
  add(topic, 'live', -#ids)
end

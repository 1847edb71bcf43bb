-- script: back_bullmq. Puts jobs that are held back where they waited. A job that was added meanwhile under the same id stays.
-- KEYS: the prefix of the queue's keys, what is held
-- ARGV: the names
local function unpacked(text)
  local fields, at = {}, 1
  while at <= #text do
    local length = struct.unpack('>I4', text:sub(at, at + 3))
    fields[#fields + 1] = text:sub(at + 4, at + 3 + length)
    at = at + 4 + length
  end
  return fields
end

redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for _, name in ipairs(ARGV) do
  local id = redis.call('HGET', KEYS[2], name .. ':entry')
  if id and redis.call('EXISTS', KEYS[1] .. id) == 0 then
    local from = redis.call('HGET', KEYS[2], name .. ':from')
    local score, unique = redis.call('HGET', KEYS[2], name .. ':score'), redis.call('HGET', KEYS[2], name .. ':id')
    local fields = unpacked(redis.call('HGET', KEYS[2], name .. ':job'))
    for at = 1, #fields, 2 do redis.call('HSET', KEYS[1] .. id, fields[at], fields[at + 1]) end
    if unique then redis.call('SET', unique, id, 'NX') end
    if from == 'delayed' then
      redis.call('ZADD', KEYS[1] .. from, score, id)
      local first = redis.call('ZRANGE', KEYS[1] .. from, 0, 0, 'WITHSCORES')
      redis.call('ZADD', KEYS[1] .. 'marker', string.format('%.0f', math.floor(tonumber(first[2]) / 4096)), '1')
    elseif from == 'prioritized' then
      redis.call('ZADD', KEYS[1] .. from, score, id)
      redis.call('ZADD', KEYS[1] .. 'marker', 0, '0')
    else
      redis.call('RPUSH', KEYS[1] .. from, id)
      if from == 'wait' then redis.call('ZADD', KEYS[1] .. 'marker', 0, '0') end
    end
  end
  for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
end
return #ARGV

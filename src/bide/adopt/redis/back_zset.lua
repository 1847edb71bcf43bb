-- script: back_zset. Puts what is held back into the sorted set, with its job. What a producer has put there meanwhile stays.
-- KEYS: the sorted set, what is held, the hash of jobs (or the sorted set again when there is none)
-- ARGV: the names
for _, name in ipairs(ARGV) do
  local member = redis.call('HGET', KEYS[2], name .. ':entry')
  if member then
    local id, job = redis.call('HGET', KEYS[2], name .. ':id'), redis.call('HGET', KEYS[2], name .. ':job')
    if id and job then redis.call('HSETNX', KEYS[3], id, job) end
    redis.call('ZADD', KEYS[1], 'NX', redis.call('HGET', KEYS[2], name .. ':score'), member)
    for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
  end
end
return #ARGV

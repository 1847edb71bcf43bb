-- script: back_plain. Puts what is held back where it was, each with its job. What a producer has put there meanwhile stays.
-- KEYS: the sorted set or list, what is held, the hash of jobs (or the first key again when there is none)
-- ARGV: set, or at which end of the list entries are taken: left or right; then the names
redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for place = 2, #ARGV do
  local name = ARGV[place]
  local entry = redis.call('HGET', KEYS[2], name .. ':entry')
  if entry then
    local id, job = redis.call('HGET', KEYS[2], name .. ':id'), redis.call('HGET', KEYS[2], name .. ':job')
    if id and job then redis.call('HSETNX', KEYS[3], id, job) end
    if ARGV[1] == 'set' then
      redis.call('ZADD', KEYS[1], 'NX', redis.call('HGET', KEYS[2], name .. ':score'), entry)
    else
      redis.call(ARGV[1] == 'left' and 'LPUSH' or 'RPUSH', KEYS[1], entry)
    end
    for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
  end
end
return #ARGV

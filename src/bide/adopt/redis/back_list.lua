-- script: back_list. Puts what is held back at the end where consumers take, each with its job.
-- KEYS: the list, what is held, the hash of jobs (or the list again when there is none)
-- ARGV: LPUSH or RPUSH, the names
for place = 2, #ARGV do
  local name = ARGV[place]
  local element = redis.call('HGET', KEYS[2], name .. ':entry')
  if element then
    local id, job = redis.call('HGET', KEYS[2], name .. ':id'), redis.call('HGET', KEYS[2], name .. ':job')
    if id and job then redis.call('HSETNX', KEYS[3], id, job) end
    redis.call(ARGV[1], KEYS[1], element)
    for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
  end
end
return #ARGV

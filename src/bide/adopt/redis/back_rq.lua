-- script: back_rq. Puts jobs back as they were. A job that somebody has made with the same id meanwhile stays.
-- KEYS: the registry or the list, what is held
-- ARGV: set or list, what the key of a job begins with, and that of one that is held; the names
redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for place = 4, #ARGV do
  local name = ARGV[place]
  local id = redis.call('HGET', KEYS[2], name .. ':entry')
  if id then
    local job = ARGV[3] .. (redis.call('HGET', KEYS[2], name .. ':from') or id)
    if redis.call('EXISTS', job) == 1 and redis.call('RENAMENX', job, ARGV[2] .. id) == 1 then
      if ARGV[1] == 'set' then
        redis.call('ZADD', KEYS[1], redis.call('HGET', KEYS[2], name .. ':score'), id)
      else
        redis.call('LPUSH', KEYS[1], id)
      end
    else
      redis.call('DEL', job)
    end
    redis.call('HDEL', KEYS[2], name .. ':entry', name .. ':score', name .. ':from')
  end
end
return #ARGV

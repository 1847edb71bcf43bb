-- script: finish_rq. Forgets jobs that were held.
-- KEYS: what is held
-- ARGV: what the key of a job that is held begins with; the names
for place = 2, #ARGV do
  local name = ARGV[place]
  local id = redis.call('HGET', KEYS[1], name .. ':entry')
  if id then
    redis.call('DEL', ARGV[1] .. (redis.call('HGET', KEYS[1], name .. ':from') or id))
    redis.call('HDEL', KEYS[1], name .. ':entry', name .. ':score', name .. ':from')
  end
end
return #ARGV

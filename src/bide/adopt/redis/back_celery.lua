-- script: back_celery. Puts what is held back into a queue's list, where workers take it next.
-- KEYS: the list, what is held
-- ARGV: for each task its name and its envelope
redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for place = 1, #ARGV, 2 do
  local name = ARGV[place]
  if redis.call('HEXISTS', KEYS[2], name .. ':entry') == 1 then
    redis.call('RPUSH', KEYS[1], ARGV[place + 1])
    redis.call('HDEL', KEYS[2], name .. ':entry', name .. ':score', name .. ':job', name .. ':asked')
  end
end
return #ARGV / 2

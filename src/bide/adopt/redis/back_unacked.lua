-- script: back_unacked. Gives what is held back as tasks whose worker has died long ago: the next worker that looks delivers them.
-- KEYS: the hash of envelopes, the index of tags, what is held
-- ARGV: for each task its name, a new tag, and its envelope
redis.call('HDEL', KEYS[3], 'right') -- a script that has written may write on at maxmemory
for place = 1, #ARGV, 3 do
  local name = ARGV[place]
  if redis.call('HEXISTS', KEYS[3], name .. ':entry') == 1 then
    redis.call('HSET', KEYS[1], ARGV[place + 1], ARGV[place + 2])
    redis.call('ZADD', KEYS[2], 0, ARGV[place + 1])
    redis.call('HDEL', KEYS[3], name .. ':entry', name .. ':score', name .. ':job', name .. ':asked')
  end
end
return #ARGV / 3

-- script: read_rq. A page of RQ's jobs, each with its id, its score, how many jobs depend on it, and fields of its hash.
-- KEYS: the registry or the list, the lock of the scheduler
-- Answers first the time in milliseconds, and 1 if a scheduler has the lock.
-- ARGV: set or list, the first place, the last place, what a job's key begins with, the fields
local flat
if ARGV[1] == 'set' then
  flat = redis.call('ZRANGE', KEYS[1], ARGV[2], ARGV[3], 'WITHSCORES')
else
  flat = {}
  for _, id in ipairs(redis.call('LRANGE', KEYS[1], ARGV[2], ARGV[3])) do
    flat[#flat + 1] = id
    flat[#flat + 1] = ''
  end
end
local now = redis.call('TIME')
local answer = {string.format('%d%03d', now[1], math.floor(now[2] / 1000)), redis.call('EXISTS', KEYS[2])}
for place = 1, #flat, 2 do
  local job = ARGV[4] .. flat[place]
  answer[#answer + 1] = flat[place]
  answer[#answer + 1] = flat[place + 1]
  answer[#answer + 1] = redis.call('SCARD', job .. ':dependents')
  answer[#answer + 1] = redis.call('HMGET', job, unpack(ARGV, 5))
end
return answer

-- script: read_rq. A page of RQ's jobs, each with its id, its score, how many jobs depend on it, and fields of its hash.
-- A job that is no hash has none, and -1 jobs that depend on it.
-- KEYS: the registry or the list, the lock of the scheduler
-- Answers first the time in milliseconds, and 1 if a scheduler has the lock.
-- ARGV: set or list, the first place, the last place, what a job's key begins with, the fields
local function is(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == kind or found == 'none'
end

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
local lacking = {} -- what HMGET answers where there is no hash
for place = 5, #ARGV do lacking[place - 4] = false end
local answer = {string.format('%d%03d', now[1], math.floor(now[2] / 1000)), redis.call('EXISTS', KEYS[2])}
for place = 1, #flat, 2 do
  local job = ARGV[4] .. flat[place]
  answer[#answer + 1] = flat[place]
  answer[#answer + 1] = flat[place + 1]
  if is(job, 'hash') and is(job .. ':dependents', 'set') then
    answer[#answer + 1] = redis.call('SCARD', job .. ':dependents')
    answer[#answer + 1] = redis.call('HMGET', job, unpack(ARGV, 5))
  else
    answer[#answer + 1] = -1
    answer[#answer + 1] = lacking
  end
end
return answer

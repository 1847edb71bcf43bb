-- script: take_zset. Takes those of the members that are still there, each with its job, and holds them beside the sorted set.
-- KEYS: the sorted set, what is held, the hash of jobs (or the sorted set again when there is none)
-- ARGV: a name of this take, 1 if there are jobs, then each member and the id of its job
-- Answers, for each that was taken: its place among the members, its name, its score, its job (or an empty text)
if redis.replicate_commands then redis.replicate_commands() end
local set, held, jobs = KEYS[1], KEYS[2], KEYS[3]
local now = redis.call('TIME')
local since = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
local answer = {}
for place = 0, (#ARGV - 2) / 2 - 1 do
  local member, id = ARGV[place * 2 + 3], ARGV[place * 2 + 4]
  local score = redis.call('ZSCORE', set, member)
  local job = ''
  if score and ARGV[2] == '1' then job = redis.call('HGET', jobs, id) end
  if score and job then
    local name = since .. '-' .. ARGV[1] .. '-' .. place
    redis.call('HSET', held, name .. ':entry', member)
    redis.call('HSET', held, name .. ':score', score)
    if ARGV[2] == '1' then
      redis.call('HSET', held, name .. ':id', id)
      redis.call('HSET', held, name .. ':job', job)
      redis.call('HDEL', jobs, id)
    end
    redis.call('ZREM', set, member)
    answer[#answer + 1] = place
    answer[#answer + 1] = name
    answer[#answer + 1] = score
    answer[#answer + 1] = job
  end
end
return answer

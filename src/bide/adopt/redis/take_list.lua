-- script: take_list. Takes those of the elements that are still there, each with its job, and holds them beside the list.
-- KEYS: the list, what is held, the hash of jobs (or the list again when there is none)
-- ARGV: a name of this take, 1 if there are jobs, 1 to look from the left and -1 from the right, then each element and the id of
-- its job
-- Answers, for each that was taken: its place among the elements, its name, its job (or an empty text)
if redis.replicate_commands then redis.replicate_commands() end
local list, held, jobs = KEYS[1], KEYS[2], KEYS[3]
local now = redis.call('TIME')
local since = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
local answer = {}
for place = 0, (#ARGV - 3) / 2 - 1 do
  local element, id = ARGV[place * 2 + 4], ARGV[place * 2 + 5]
  local job = ''
  if ARGV[2] == '1' then job = redis.call('HGET', jobs, id) end
  if job and redis.call('LREM', list, ARGV[3], element) == 1 then
    local name = since .. '-' .. ARGV[1] .. '-' .. place
    redis.call('HSET', held, name .. ':entry', element)
    if ARGV[2] == '1' then
      redis.call('HSET', held, name .. ':id', id)
      redis.call('HSET', held, name .. ':job', job)
      redis.call('HDEL', jobs, id)
    end
    answer[#answer + 1] = place
    answer[#answer + 1] = name
    answer[#answer + 1] = job
  end
end
return answer

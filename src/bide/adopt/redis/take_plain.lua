-- script: take_plain. Takes those of the entries that are still there, each with its job, and holds them beside their key.
-- KEYS: the sorted set or list, what is held, the hash of jobs (or the first key again when there is none)
-- ARGV: a name of this take; set, or at which end of the list it takes: left or right; 1 if there are jobs; then each entry and
--   the id of its job
-- Answers, for each that was taken: its place among the entries, its name, its score (or an empty text), its job (or an empty text)
if redis.replicate_commands then redis.replicate_commands() end
local source, held, jobs = KEYS[1], KEYS[2], KEYS[3]
-- A user who lacks the right to hold what is taken ends here, before anything is taken. HDEL is tried first: a user without
-- it would leave the field of HSET behind. And a script that has written may write on at maxmemory, so a full Redis can be
-- emptied.
redis.call('HDEL', held, 'right')
redis.call('HSET', held, 'right', '')
redis.call('HDEL', held, 'right')
local now = redis.call('TIME')
local since = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
local answer = {}
for place = 0, (#ARGV - 3) / 2 - 1 do
  local entry, id = ARGV[place * 2 + 4], ARGV[place * 2 + 5]
  local score, job, there = '', '', false
  if ARGV[3] == '1' then job = redis.call('HGET', jobs, id) end
  if job and ARGV[2] == 'set' then
    score = redis.call('ZSCORE', source, entry)
    there = redis.call('ZREM', source, entry) == 1
  elseif job then
    there = redis.call('LREM', source, ARGV[2] == 'left' and 1 or -1, entry) == 1
  end
  if there then
    local name = since .. '-' .. ARGV[1] .. '-' .. place
    redis.call('HSET', held, name .. ':entry', entry)
    if score ~= '' then redis.call('HSET', held, name .. ':score', score) end
    if ARGV[3] == '1' then
      redis.call('HSET', held, name .. ':id', id)
      redis.call('HSET', held, name .. ':job', job)
      redis.call('HDEL', jobs, id)
    end
    answer[#answer + 1] = place
    answer[#answer + 1] = name
    answer[#answer + 1] = score
    answer[#answer + 1] = job
  end
end
return answer

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

-- script: back_plain. Puts what is held back where it was, each with its job. What a producer has put there meanwhile stays.
-- KEYS: the sorted set or list, what is held, the hash of jobs (or the first key again when there is none)
-- ARGV: set, or at which end of the list entries are taken: left or right; then the names
redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for place = 2, #ARGV do
  local name = ARGV[place]
  local entry = redis.call('HGET', KEYS[2], name .. ':entry')
  if entry then
    local id, job = redis.call('HGET', KEYS[2], name .. ':id'), redis.call('HGET', KEYS[2], name .. ':job')
    if id and job then redis.call('HSETNX', KEYS[3], id, job) end
    if ARGV[1] == 'set' then
      redis.call('ZADD', KEYS[1], 'NX', redis.call('HGET', KEYS[2], name .. ':score'), entry)
    else
      redis.call(ARGV[1] == 'left' and 'LPUSH' or 'RPUSH', KEYS[1], entry)
    end
    for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
  end
end
return #ARGV

-- script: held. What is held, and the time.
-- KEYS: what is held
-- Answers the time in milliseconds, and the fields with their values.
local now = redis.call('TIME')
return {string.format('%d%03d', now[1], math.floor(now[2] / 1000)), redis.call('HGETALL', KEYS[1])}

-- script: finish. Forgets what was held.
-- KEYS: what is held
-- ARGV: the names
for _, name in ipairs(ARGV) do
  for _, part in ipairs({':entry', ':score', ':id', ':job', ':from', ':asked'}) do redis.call('HDEL', KEYS[1], name .. part) end
end
return #ARGV

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

-- script: take_rq. Takes those of RQ's jobs that are still there, and that no scheduler may have read as due.
-- KEYS: the registry or the list, what is held, the lock of the scheduler
-- ARGV: a name of this take, set or list, how many ms a job must not be due in, what the key of a job begins with, and that of
--   one that is held; how many fields, and their names; then the ids
-- Answers, for each that was taken: its place among the ids, its name, its score (or an empty text), and those fields of its
--   hash: a job may be scheduled for another time, or saved again, after its page was read
if redis.replicate_commands then redis.replicate_commands() end
-- A user who lacks the right to hold what is taken ends here, before anything is taken. HDEL is tried first: a user without
-- it would leave the field of HSET behind. And a script that has written may write on at maxmemory, so a full Redis can be
-- emptied.
redis.call('HDEL', KEYS[2], 'right')
redis.call('HSET', KEYS[2], 'right', '')
redis.call('HDEL', KEYS[2], 'right')
redis.call('PERSIST', ARGV[5])
redis.call('HGET', KEYS[2], 'right')
redis.call('DEL', ARGV[5])
local tried = redis.pcall('RENAME', ARGV[5], ARGV[5]) -- there is no such key, and the error says either that or what is missing
if tried.err and not tried.err:find('no such key') then return redis.error_reply(tried.err .. " ('rename' command)") end
local now = redis.call('TIME')
local since = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
local scheduler = redis.call('EXISTS', KEYS[3]) == 1
local soon = tonumber(since) + tonumber(ARGV[3])
local fields = {}
for place = 7, 6 + tonumber(ARGV[6]) do fields[#fields + 1] = ARGV[place] end
local first = 7 + #fields
local answer = {}
for place = first, #ARGV do
  local id = ARGV[place]
  local job = ARGV[4] .. id
  if redis.call('TYPE', job).ok == 'hash' and redis.call('EXISTS', job .. ':dependents') == 0 then
    redis.call('HDEL', job, 'right') -- a user who may only read jobs ends here, before this one is taken
    local score, there = '', false
    local values = redis.call('HMGET', job, unpack(fields))
    if ARGV[2] == 'set' then
      score = redis.call('ZSCORE', KEYS[1], id)
      there = score and (not scheduler or tonumber(score) * 1000 >= soon)
      if there then redis.call('ZREM', KEYS[1], id) end
    else
      there = redis.call('LREM', KEYS[1], 1, id) == 1
    end
    if there then
      local name = since .. '-' .. ARGV[1] .. '-' .. (place - first)
      redis.call('HSET', KEYS[2], name .. ':entry', id)
      if score ~= '' then redis.call('HSET', KEYS[2], name .. ':score', score) end
      redis.call('HSET', KEYS[2], name .. ':from', name) -- its key: another job may come with the same id
      redis.call('PERSIST', job)
      redis.call('RENAME', job, ARGV[5] .. name)
      answer[#answer + 1] = place - first
      answer[#answer + 1] = name
      answer[#answer + 1] = score
      answer[#answer + 1] = values
    end
  end
end
return answer

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

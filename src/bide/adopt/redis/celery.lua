-- script: read_unacked. A page of Celery's tasks that workers have, each with its time and its envelope (or an empty text).
-- KEYS: the index of tags by time, the hash of envelopes by tag
-- ARGV: the first place, the last place
-- Answers first how many tags the index has.
local found = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
local answer = {redis.call('ZCARD', KEYS[1])}
for place = 1, #found, 2 do
  answer[#answer + 1] = found[place]
  answer[#answer + 1] = found[place + 1]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], found[place]) or ''
end
return answer

-- script: read_lost. A part of Celery's tasks that workers have, and whose tags are not in the index.
-- KEYS: the index of tags by time, the hash of envelopes by tag
-- ARGV: where HSCAN goes on
-- Answers first where it goes on next, then for each task its tag and its envelope
local scanned = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', 1000)
local answer, found = {scanned[1]}, scanned[2]
for place = 1, #found, 2 do
  if not redis.call('ZSCORE', KEYS[1], found[place]) then
    answer[#answer + 1] = found[place]
    answer[#answer + 1] = found[place + 1]
  end
end
return answer

-- script: take_celery. Takes those tasks that are still there and not due soon, holds them, and tells the workers in the same
-- step to drop them: so there is no moment at which a task is taken and no worker was told.
-- KEYS: the hash of envelopes or the list, the index of tags (or the list again), what is held
-- ARGV: a name of this take; hash or list; how many workers listen; their channel; a question that they need not answer;
--   how a question begins and ends, and how its body begins and ends around the ids; how many ms a task must not be due in;
--   then for each task its tag or element, its due time (or an empty text), and its id if workers are to be told (or an empty text)
-- Answers how many workers listen; -1 before it if that is another number, and then nothing was done; else for each task that
--   was taken its place and its name
if redis.replicate_commands then redis.replicate_commands() end
local source, index, held = KEYS[1], KEYS[2], KEYS[3]
-- A user who lacks the right to hold what is taken ends here, before anything is taken. HDEL is tried first: a user without
-- it would leave the field of HSET behind. And a script that has written may write on at maxmemory, so a full Redis can be
-- emptied.
redis.call('HDEL', held, 'right')
redis.call('HSET', held, 'right', '')
redis.call('HDEL', held, 'right')
local heard = redis.call('PUBLISH', ARGV[4], ARGV[5])
if heard ~= tonumber(ARGV[3]) then return {-1, heard} end
local time = redis.call('TIME')
local since = string.format('%d%03d', time[1], math.floor(time[2] / 1000))
local soon = tonumber(since) + tonumber(ARGV[10])
local answer, ids = {heard}, {}
for place = 11, #ARGV, 3 do
  local entry, due, id = ARGV[place], tonumber(ARGV[place + 1]), ARGV[place + 2]
  local name = since .. '-' .. ARGV[1] .. '-' .. ((place - 11) / 3)
  local told = id ~= '' and heard > 0
  local there = false
  if not told or (due and due >= soon) then
    if ARGV[2] == 'list' then
      there = redis.call('LREM', source, -1, entry) == 1
    else
      local envelope = redis.call('HGET', source, entry)
      if envelope then
        there = true
        local score = redis.call('ZSCORE', index, entry) or '0'
        redis.call('ZREM', index, entry) -- first: a user who lacks this right ends here, before anything is taken
        redis.call('HSET', held, name .. ':job', envelope, name .. ':score', score)
        redis.call('HDEL', source, entry)
      end
    end
  end
  if there then
    redis.call('HSET', held, name .. ':entry', entry)
    if told then
      redis.call('HSET', held, name .. ':asked', '1')
      ids[#ids + 1] = id
    end
    answer[#answer + 1] = (place - 11) / 3
    answer[#answer + 1] = name
  end
end
if #ids > 0 then
  local body = ARGV[8] .. '"' .. table.concat(ids, '","') .. '"' .. ARGV[9]
  redis.call('PUBLISH', ARGV[4], ARGV[6] .. cjson.encode(body) .. ARGV[7])
end
return answer

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

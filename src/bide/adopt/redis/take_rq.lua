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

-- script: take_bullmq. Takes those of the jobs that still wait, and holds them beside the queue. A lasting deduplication key of a job
-- goes with it, as when BullMQ has finished the job.
-- KEYS: the prefix of the queue's keys, what is held
-- ARGV: a name of this take, then the id of each job and the name of its list
-- Answers, for each that was taken: its place, its name, its score (or an empty text), its fields and values: each has its length
-- before it, as four bytes
if redis.replicate_commands then redis.replicate_commands() end
local function pack(fields)
  local packed = {}
  for _, text in ipairs(fields) do packed[#packed + 1] = struct.pack('>I4', #text) .. text end
  return table.concat(packed)
end

-- A user who lacks the right to hold what is taken ends here, before anything is taken. HDEL is tried first: a user without
-- it would leave the field of HSET behind. And a script that has written may write on at maxmemory, so a full Redis can be
-- emptied.
redis.call('HDEL', KEYS[2], 'right')
redis.call('HSET', KEYS[2], 'right', '')
redis.call('HDEL', KEYS[2], 'right')
for _, command in ipairs({'GET', 'PTTL', 'DEL'}) do redis.call(command, KEYS[1]) end -- there is no key of this name
redis.call('ZREM', KEYS[1], '')
redis.call('LREM', KEYS[1], 1, '')
local now = redis.call('TIME')
local since = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
local answer = {}
for place = 0, (#ARGV - 1) / 2 - 1 do
  local id, from = ARGV[place * 2 + 2], ARGV[place * 2 + 3]
  local list, job = KEYS[1] .. from, KEYS[1] .. id
  local fields = redis.call('TYPE', job).ok == 'hash' and redis.call('HGETALL', job) or {}
  local score, found = '', false
  if #fields > 0 then redis.call('HDEL', job, 'right') end -- a user who may only read jobs ends here, before this one is taken
  if #fields > 0 and (from == 'delayed' or from == 'prioritized') then
    score = redis.call('ZSCORE', list, id) or ''
    found = redis.call('ZREM', list, id) == 1
  elseif #fields > 0 then
    found = redis.call('LREM', list, -1, id) == 1
  end
  if found then
    local name = since .. '-' .. ARGV[1] .. '-' .. place
    local packed = pack(fields)
    redis.call('HSET', KEYS[2], name .. ':entry', id)
    redis.call('HSET', KEYS[2], name .. ':from', from)
    if score ~= '' then redis.call('HSET', KEYS[2], name .. ':score', score) end
    redis.call('HSET', KEYS[2], name .. ':job', packed)
    for at = 1, #fields, 2 do
      local unique = KEYS[1] .. 'de:' .. fields[at + 1]
      if fields[at] == 'deid' and redis.call('GET', unique) == id and redis.call('PTTL', unique) == -1 then
        redis.call('DEL', unique)
        redis.call('HSET', KEYS[2], name .. ':id', unique)
      end
    end
    redis.call('DEL', job)
    answer[#answer + 1] = place
    answer[#answer + 1] = name
    answer[#answer + 1] = score
    answer[#answer + 1] = packed
  end
end
return answer

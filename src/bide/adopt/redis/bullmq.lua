-- script: read_bullmq. A page of the jobs of a queue that wait: of its lists one after the other.
-- KEYS: the prefix of the queue's keys, what is held
-- ARGV: the first place, how many, the names of the lists
-- Answers, for each job: its id, its score (or an empty text), its fields as take_bullmq packs them, the name of its list. A job that
-- is no hash has one field, :type.
local function pack(fields)
  local packed = {}
  for _, text in ipairs(fields) do packed[#packed + 1] = struct.pack('>I4', #text) .. text end
  return table.concat(packed)
end

local first, left = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {}
for place = 3, #ARGV do
  local name = ARGV[place]
  local key = KEYS[1] .. name
  local ordered = name == 'delayed' or name == 'prioritized'
  local size = redis.call(ordered and 'ZCARD' or 'LLEN', key)
  if left > 0 and first < size then
    local found
    if ordered then
      found = redis.call('ZRANGE', key, first, first + left - 1, 'WITHSCORES')
    else
      found = {}
      local elements = redis.call('LRANGE', key, -(first + left), -(first + 1))
      for at = #elements, 1, -1 do
        found[#found + 1] = elements[at]
        found[#found + 1] = ''
      end
    end
    for at = 1, #found, 2 do
      local kind = redis.call('TYPE', KEYS[1] .. found[at]).ok
      local hashed = kind == 'hash' or kind == 'none'
      local fields = hashed and redis.call('HGETALL', KEYS[1] .. found[at]) or {':type', kind}
      if redis.call('EXISTS', KEYS[1] .. found[at] .. ':processed') == 1 then
        fields[#fields + 1] = 'flow'
        fields[#fields + 1] = '1'
      end
      answer[#answer + 1] = found[at]
      answer[#answer + 1] = found[at + 1]
      answer[#answer + 1] = pack(fields)
      answer[#answer + 1] = name
    end
    left = left - #found / 2
    first = 0
  else
    first = math.max(0, first - size)
  end
end
return answer

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

-- script: back_bullmq. Puts jobs that are held back where they waited. A job that was added meanwhile under the same id stays.
-- KEYS: the prefix of the queue's keys, what is held
-- ARGV: the names
local function unpacked(text)
  local fields, at = {}, 1
  while at <= #text do
    local length = struct.unpack('>I4', text:sub(at, at + 3))
    fields[#fields + 1] = text:sub(at + 4, at + 3 + length)
    at = at + 4 + length
  end
  return fields
end

redis.call('HDEL', KEYS[2], 'right') -- a script that has written may write on at maxmemory
for _, name in ipairs(ARGV) do
  local id = redis.call('HGET', KEYS[2], name .. ':entry')
  if id and redis.call('EXISTS', KEYS[1] .. id) == 0 then
    local from = redis.call('HGET', KEYS[2], name .. ':from')
    local score, unique = redis.call('HGET', KEYS[2], name .. ':score'), redis.call('HGET', KEYS[2], name .. ':id')
    local fields = unpacked(redis.call('HGET', KEYS[2], name .. ':job'))
    for at = 1, #fields, 2 do redis.call('HSET', KEYS[1] .. id, fields[at], fields[at + 1]) end
    if unique then redis.call('SET', unique, id, 'NX') end
    if from == 'delayed' then
      redis.call('ZADD', KEYS[1] .. from, score, id)
      local first = redis.call('ZRANGE', KEYS[1] .. from, 0, 0, 'WITHSCORES')
      redis.call('ZADD', KEYS[1] .. 'marker', string.format('%.0f', math.floor(tonumber(first[2]) / 4096)), '1')
    elseif from == 'prioritized' then
      redis.call('ZADD', KEYS[1] .. from, score, id)
      redis.call('ZADD', KEYS[1] .. 'marker', 0, '0')
    else
      redis.call('RPUSH', KEYS[1] .. from, id)
      if from == 'wait' then redis.call('ZADD', KEYS[1] .. 'marker', 0, '0') end
    end
  end
  for _, part in ipairs({':entry', ':score', ':id', ':job', ':from'}) do redis.call('HDEL', KEYS[2], name .. part) end
end
return #ARGV

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

-- script: read_zset. A page of the sorted set, each member with its score and its job (or an empty text).
-- KEYS: the sorted set, what is held, the hash of jobs (or the sorted set again when there is none)
-- ARGV: the first place, the last place, 1 if there are jobs
local found = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
local answer = {}
for place = 1, #found, 2 do
  answer[#answer + 1] = found[place]
  answer[#answer + 1] = found[place + 1]
  answer[#answer + 1] = ARGV[3] == '1' and redis.call('HGET', KEYS[3], found[place]) or ''
end
return answer

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

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

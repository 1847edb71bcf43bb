-- Drop messages that are still in a state. After what every script is told: topic, state, then ids.
-- Gives: now, how many were dropped.

-- include: begin topic drop keys message

local again = before()
if again then return again end
local name, wanted, ids = take_text(), take_text(), {}
while NEXT < #ARGV do
  ids[#ids + 1] = take_text()
  if #ids[#ids] ~= 9 then error('BADARG id', 0) end
end
may('HDEL', 'HINCRBY', 'HSET', 'LSET', 'PEXPIRE', 'UNLINK', 'ZREM')
begin_shrinking()
local topic, count = find_topic(name), 0
for _, id in ipairs(topic and ids or {}) do
  local _, value, life, state = living(topic, id)
  local due = value and (life and life.due or born_due(id, value))
  local is = state
  if state == 'far' or state == 'near' then is = due <= now and 'ready' or 'scheduled' end
  if value and is == wanted then
    if state == 'dead' then call('ZREM', topic.prefix .. 'dead', id) else unschedule(topic, id, state, life) end
    finish(topic, id, value, life)
    count = count + 1
  end
end
if topic and wanted == 'dead' and call('ZCARD', topic.prefix .. 'dead') == 0 then set(topic, 'dropped', 0) end
close_topics()
return answer({format('%d', now), count})

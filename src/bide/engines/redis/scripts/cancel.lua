-- End pending messages. After what every script is told: how many, and of each what names it (four arguments).
-- Gives: now, a string of c (cancelled), r (running), d (dead) and g (gone).

-- include: begin once home topic change drop keys message finish living refs named

local function cancel(ref)
  local topic, id, value, life, state = find(ref)
  if not id then return 'g' end
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  unschedule(topic, id, state, life)
  finish(topic, id, value, life)
  return 'c'
end

local again = before()
if again then return again end
local refs, results = {}, {}
for i = 1, take_number() do refs[i] = take_ref() end
begin_shrinking()
for i, ref in ipairs(refs) do results[i] = cancel(ref) end
close_topics()
return answer({format('%d', now), table.concat(results)})

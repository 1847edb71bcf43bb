-- Stop handing out a topic's messages, or go on. After what every script is told: topic, 1 or 0. Gives: now.

-- include: begin once home topic change drop

local again = before()
if again then return again end
local name, paused = take_text(), take_number()
if paused == 1 then begin_growing() else begin_shrinking() end
local topic = paused == 1 and make_topic(name) or find_topic(name)
if topic then
  set(topic, 'paused', paused)
  if paused == 1 then set(topic, 'next', NEVER) else wake(topic, 0) end
  close_topics()
end
return answer({format('%d', now)})

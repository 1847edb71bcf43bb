-- New messages, all of them plain.

-- script: put
-- Accept plain messages: no key, operation, expiry or large body. After what every script is told: the longest delay,
-- then how many sections, and each: topic, level, how many, then of each: when (ms from now, or '@' and an instant),
-- content. Gives: now, now rounded up, the salt; in a list, of each section the topic's number and the ids;
-- an empty list; and the server's clock, if it is behind.

-- include: lone begin layout topics wake early plain

if #SALT ~= 2 then error('BADARG salt', 0) end
local again = before()
if again then return again end
local sections = take_sections(take_number())
begin_growing()
local function placed(where)
  close_topics()
  return answer({format('%d', now), format('%d', ceiling), SALT, where, {}, wall < now and format('%d', wall) or nil})
end
local lone = #sections == 1 and #sections[1].dues == 1 and sections[1]
if lone then
  local topic = make_topic(lone.topic)
  local id = place_early(topic, lone.level, lone.dues[1], lone.blobs[1])
  if id then return placed({topic.digits, id}) end
end

-- include: place

return placed(place_sections(sections))

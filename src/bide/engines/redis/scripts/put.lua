-- Accept plain messages: no key, operation, expiry or large body. After what every script is told: the longest delay,
-- then how many sections, and each: topic, level, how many, then of each: when (ms from now, or '@' and an instant),
-- content. Gives: now, now rounded up, the salt; in a list, of each section the topic's number and the ids;
-- and an empty list.

-- include: begin once home topic change times place sections

if #SALT ~= 2 then error('BADARG salt', 0) end
local again = before()
if again then return again end
local sections = take_sections(take_number())
begin_growing()
local placed = place_sections(sections)
close_topics()
return answer({format('%d', now), format('%d', ceiling), SALT, placed, {}})

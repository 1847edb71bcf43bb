-- The run of a script that accepts messages of which some are not plain.

if #SALT ~= 2 then error('BADARG salt', 0) end
local again = before()
if again then return again end
local longest = take_number()
local sections, others = take_sections(longest), take_others(longest)
begin_growing()
local placed = place_sections(sections)
learn_operations(others)
learn_keys(others)
for at, new in ipairs(others) do put_other(at, new) end
settle_created()
for i = 1, #noted, 1000 do call('HSET', of_epoch('ops', 0), unpack(noted, i, math.min(i + 999, #noted))) end
if #noted > 0 then call('PEXPIRE', of_epoch('ops', 0), LIFE) end
close_topics()
return answer({format('%d', now), format('%d', ceiling), SALT, placed, told_of(results), wall < now and format('%d', wall) or nil})

-- Take a token from the wake lists, without blocking. After what every script is told: topics. Gives: now, 1 or 0.

-- include: begin once tell

local refused = before()
if refused then return refused end
local woken = 0
while NEXT < #ARGV and woken == 0 do
  if call('LPOP', P .. 'w:' .. take_text()) then woken = 1 end
end
return tell({format('%d', now), woken})

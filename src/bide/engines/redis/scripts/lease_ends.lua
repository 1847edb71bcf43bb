-- Tell when the leases of messages end. After what every script is told: the cursor of the last script ('0' at first), then
-- the messages' full ids. Gives: now, the cursor to go on from ('0' when there is nothing more to find), and of each that
-- was found its full id and the end of its lease.

-- include: begin home topic message units walk held tell

local cursor, wanted, left, found = take_text(), {}, 0, {}
while NEXT < #ARGV do
  wanted[take_text()] = true
  left = left + 1
end
cursor = each_unit(cursor, function(unit)
  for place = 1, #unit.states do
    local full = full_at(unit, place)
    if wanted[full] and unit.states[place] ~= ENDED then
      found[#found + 1], found[#found + 2] = full, format('%d', lease_end(unit, place))
      wanted[full], left = nil, left - 1
    end
  end
end)
return tell({format('%d', now), left == 0 and '0' or cursor, found})

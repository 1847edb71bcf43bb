-- Times as they are asked for: never early, and what is for now is for now.

local function due_of(when, longest, now, ceiling)
  if byte(when) == 64 then
    local at = number(sub(when, 2))
    if at - now > longest then error('TOOFAR', 0) end
    return math.max(at, now)
  end
  local delay = number(when)
  if delay > longest then error('TOOFAR', 0) end
  return delay == 0 and now or ceiling + delay
end

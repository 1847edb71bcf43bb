-- Plain messages, as put is told of them: sections of one topic and level each.

-- flags (attempts, headers; then for an instant), and the least bytes they need
local PLAIN = {[0] = 1, [1] = 3, [8] = 5, [9] = 7, [32] = 1, [33] = 3, [40] = 5, [41] = 7}

local function take_sections(longest)
  local sections = {}
  for s = 1, take_number() do
    local section = {topic = take_text(), level = take_number(), dues = {}, blobs = {}}
    if section.level > 2 then error('BADARG level', 0) end
    local dues, blobs, when, due, instant = section.dues, section.blobs, nil, nil, nil
    for i = 1, take_number() do
      local asked, blob = take_text(), take_text()
      local flags = byte(blob)
      if asked ~= when then
        when = asked
        due, instant = due_of(asked, longest, now, ceiling, wall)
      end
      if #blob < (PLAIN[flags] or math.huge) then error('BADARG content', 0) end
      if flags >= FLAG.instant and not instant then blob = char(flags - FLAG.instant) .. sub(blob, 2) end -- it is past, so for now
      dues[i], blobs[i] = due, blob
    end
    sections[s] = section
  end
  return sections
end

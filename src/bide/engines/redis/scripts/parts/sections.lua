-- Plain messages, as put is told of them: sections of one topic and level each.

local PLAIN = {[0] = 1, [1] = 3, [8] = 5, [9] = 7} -- flags (attempts, headers), and the least bytes they need

local function take_sections(longest)
  local sections = {}
  for s = 1, take_number() do
    local section = {topic = take_text(), level = take_number(), dues = {}, blobs = {}}
    if section.level > 2 then error('BADARG level', 0) end
    local dues, blobs, when, due = section.dues, section.blobs, nil, nil
    for i = 1, take_number() do
      local asked, blob = take_text(), take_text()
      if asked ~= when then when, due = asked, due_of(asked, longest, now, ceiling) end
      if #blob < (PLAIN[byte(blob)] or math.huge) then error('BADARG content', 0) end
      dues[i], blobs[i] = due, blob
    end
    sections[s] = section
  end
  return sections
end

-- Gives of each section the topic's number and the ids.
local function place_sections(sections)
  local placed = {}
  for _, section in ipairs(sections) do
    local topic, dues, blobs = make_topic(section.topic), section.dues, section.blobs
    local ids = #dues == 1 and place_one(topic, section.level, dues[1], blobs[1])
      or table.concat(place(topic, section.level, dues, blobs))
    placed[#placed + 1], placed[#placed + 2] = topic.digits, ids
  end
  return placed
end

-- New messages.

-- include: begin layout topics wake early

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

-- script: put
-- Accept plain messages: no key, operation, expiry or large body. After what every script is told: the longest delay,
-- then how many sections, and each: topic, level, how many, then of each: when (ms from now, or '@' and an instant),
-- content. Gives: now, now rounded up, the salt; in a list, of each section the topic's number and the ids;
-- an empty list; and the server's clock, if it is behind.

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

-- script: put_named
-- Accept messages of which some have a key, an operation, an expiry or a large body. After what put is told: how many
-- of these, and each: topic, level, when, content, key, if_exists, operation, large body, within: of the message whose handler
-- sends this, the number of its topic, its id and salt.
-- Gives what put does; the second list has of each run of these in one topic: the topic's number, and of each of them
-- the outcome's first letter, id, salt, due (6 bytes), in one text, since a lane remembers it. A shard that only empties
-- itself creates nothing: a message that it knows nothing of is `absent`, and goes to another shard.

-- include: place keys holding expiries finish pending named accept

-- script: put_ruled
-- The same, with what if_exists says more: `later` and a number of ms, the longest wait; `keep` or `error` and
-- such a number: for so long it is the only one of its key; `merge` and the most
-- bytes of a body that holds several; `past` and the attempts that it had elsewhere (2 bytes), whether it is a dead letter
-- (1 byte), its error behind its length (4 bytes), and records of attempts, each behind its length (2 bytes).

-- include: place keys holding expiries finish pending named tails rules accept

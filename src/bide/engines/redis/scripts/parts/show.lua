-- All that is to be told of a message: its topic's number, id, value, state, life, large body.

local shown_bytes, FULL = 0, 1048576 -- told by this script, and how much is enough

local function shown(topic, id, value, life, state)
  local text, large = life and life_text(life) or '', ''
  if has(flags_of(id, value), LARGE) then large = call('GET', large_of(topic, id)) or '' end
  shown_bytes = shown_bytes + #value + #text + #large
  return {topic.digits, id, value, state, text, large}
end

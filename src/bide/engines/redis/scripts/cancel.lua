-- Pending messages end, or get a new time.

-- include: begin layout topics wake keys holding expiries finish pending

-- script: cancel
-- End pending messages. After what every script is told: how many, and of each what names it (four arguments).
-- Gives: now, a string of c (cancelled), r (running), d (dead) and g (gone).

local function cancel(ref)
  local topic, id, value, life, state = find(ref)
  if not id then return 'g' end
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  unschedule(topic, id, state, life)
  finish(topic, id, value, life)
  return 'c'
end

local again = before()
if again then return again end
local refs, results = {}, {}
for i = 1, take_number() do refs[i] = take_ref() end
begin_shrinking()
for i, ref in ipairs(refs) do results[i] = cancel(ref) end
close_topics()
return answer({format('%d', now), table.concat(results)})

-- script: cancel_seen
-- End pending messages if all of them are as they were seen, else none. After what every script is told: how many, and of each
-- what names it (four arguments), and its due time; behind that, if its body counts, a colon and its body. Gives: as cancel; what
-- has changed is gone.

-- include: tails

local function take_seen()
  local seen = take_text()
  local colon = string.find(seen, ':', 1, true)
  if not colon then return number(seen) end
  return number(sub(seen, 1, colon - 1)), sub(seen, colon + 1)
end

local function as_seen(topic, id, value, life, due, body)
  if due ~= (life and life.due or born_due(id, value)) then return false end
  if not body then return true end
  local tail = tails.of(topic, id, value)
  return sub(tail, tails.body_at(flags_of(id, value), tail)) == body
end

local topics, ids, values, lives, states = {}, {}, {}, {}, {} -- of those that can be cancelled, by their places
local named = {} -- what has been looked at: a message that is named twice is gone by then

local function look(i, ref, due, body)
  local topic, id, value, life, state = find(ref)
  if not id or named[topic.digits .. id] then return 'g' end
  named[topic.digits .. id] = true
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  if not as_seen(topic, id, value, life, due, body) then return 'g' end
  topics[i], ids[i], values[i], lives[i], states[i] = topic, id, value, life or false, state
  return 'c'
end

local again = before()
if again then return again end
local refs, dues, bodies, results, whole = {}, {}, {}, {}, true
for i = 1, take_number() do
  refs[i] = take_ref()
  dues[i], bodies[i] = take_seen()
end
begin_shrinking()
for i, ref in ipairs(refs) do
  results[i] = look(i, ref, dues[i], bodies[i])
  whole = whole and results[i] == 'c'
end
if whole then
  for i, id in ipairs(ids) do
    unschedule(topics[i], id, states[i], lives[i])
    finish(topics[i], id, values[i], lives[i])
  end
end
close_topics()
return answer({format('%d', now), table.concat(results)})

-- script: reschedule
-- Give pending messages a new time. After what every script is told: the longest delay; nothing, or the due time of a message
-- that must be pending and due then, or else all are gone, and what names it (four arguments); how many, and of each: when (ms
-- from now; '@' and an instant; '+' and ms from its due time, or '-' and ms from since when it waits; then perhaps a blank and
-- the due time that it must have), and what names it. Gives: now, a string of m, r (running), d (dead), g (gone).

local DUE, SINCE = 43, 45 -- what `when` begins with if it counts from a time of the message

local function holds(due, ref)
  local topic, id, value, life, state = find(ref)
  return id and (state == 'far' or state == 'near') and (life and life.due or born_due(id, value)) == due
end

-- Moves it to `due`, or to so long after its own time.
local function move(each, furthest)
  local topic, id, value, life, state = find(each.ref)
  if not id then return 'g' end
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  if each.seen and each.seen ~= (life and life.due or born_due(id, value)) then return 'g' end
  unschedule(topic, id, state, life)
  life = life or new_life(id, value)
  local due, instant = each.due, each.instant
  if each.from then
    due = math.min((each.from == DUE and life.due or life.since) + due, furthest)
    instant = due > wall and has(life.marks, BY_CLOCK) -- what is told from an instant is one, too
  end
  set_due(life, due, instant)
  life.since = instant and reached_at(due) or due
  forget_began(life)
  save_life(topic, id, life)
  schedule(topic, id, life)
  local expires = expiry_of(id, value, life)
  if expires then expiries.note_of(topic, id, expires) end
  return 'm'
end

local again = before()
if again then return again end
local longest, moves, results = take_number(), {}, {}
local must_be, holder = take_text(), nil
if must_be ~= '' then must_be, holder = number(must_be), take_ref() end
for i = 1, take_number() do
  local when, seen = take_text(), nil
  local blank = string.find(when, ' ', 1, true)
  if blank then when, seen = sub(when, 1, blank - 1), number(sub(when, blank + 1)) end
  local from = byte(when)
  if from == DUE or from == SINCE then
    local delay = number(sub(when, 2))
    if delay > longest then error('TOOFAR', 0) end
    moves[i] = {due = delay, ref = take_ref(), from = from, seen = seen}
  else
    local due, instant = due_of(when, longest, now, ceiling, wall)
    moves[i] = {due = due, instant = instant, ref = take_ref(), seen = seen}
  end
end
begin_growing()
local may = not holder or holds(must_be, holder)
for i, each in ipairs(moves) do results[i] = may and move(each, now + longest) or 'g' end
close_topics()
return answer({format('%d', now), table.concat(results)})

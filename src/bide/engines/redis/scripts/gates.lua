-- Gates: who is inside, who is called, and who waits. What a gate is stands in parts/gates.lua.

-- include: begin gates

local BESIDE = 10 -- gates and rates that a script tidies beside its own

-- script: enter
-- Take places. After what every script is told: a token that is to be passed, how many, and of each: gate, holder, lease in ms,
-- places, waiter ('' none, '+' and its name), ms within which it asks again (0: it does not ask). Gives: now, the last token, and
-- of each: its token; or 'w', since when it waits ('' if it does not), ',' and in how many ms a place is free ('' for a message
-- that waits, or if nobody knows); or 'a' (not here).

local TIES = 1024 -- waiters of one ms whose order in the line does not shift the time since when they wait
local least, emptying = 0, retiring()

local function next_token()
  last_token = math.max(token_before() + 1, us, least + 1)
  return format('%016d', last_token)
end

-- Since when somebody waits, who may wait already.
local function wait(gate, waiter, asks, changes)
  local order = tonumber(gate.waiting > 0 and call('ZSCORE', gate.line, waiter) or nil)
  if not order then
    local last = gate.waiting > 0 and tonumber(call('ZRANGE', gate.line, -1, -1, 'WITHSCORES')[2]) or 0
    order = math.max(now * TIES, last + 1)
    call('ZADD', gate.line, format('%d', order), waiter)
    gate.waiting, gate.changed = gate.waiting + 1, true
  end
  if asks > 0 and tonumber(gate.asks and call('ZSCORE', gate.asking, waiter) or 0) - now <= asks * 2 / 3 then
    call('ZADD', gate.asking, format('%d', now + asks), waiter)
    if not gate.asks then changes[#changes + 1], changes[#changes + 2], gate.asks = 'asking', '1', true end
  end
  return format('%d', floor(order / TIES))
end

-- In how many ms a place is free, unless it is kept for longer.
local function free_in(gate)
  local first = first_time(gate.inside)
  return first < math.huge and format('%d', math.max(0, first - now)) or ''
end

-- Whether a waiter's turn was called; then it is not any more.
local function take_turn(gate, waiter)
  if not waiter or gate.new or call('ZREM', gate.again, waiter) == 0 then return false end
  call('ZREM', gate.inside, 'c' .. waiter)
  gate.taken = gate.taken - 1
  return true
end

-- Whether somebody may enter whose turn was not called: there is room, and nobody before it, who leaves the line then.
local function admits(gate, places, waiter)
  if gate.taken >= places then return false end
  if gate.waiting == 0 then return true end
  if not waiter or call('ZRANGE', gate.line, 0, 0)[1] ~= waiter then return false end
  stop_waiting(gate, waiter)
  return true
end

local function enter(entry)
  local gate, member = gate_of(entry.gate), 'h' .. entry.holder
  clear(gate)
  local known = is_empty(gate) and {} or call('HMGET', gate.key, 'places', member, 'asking')
  know(gate, known[1], known[3])
  drop_silent(gate)
  if emptying and is_empty(gate) then return 'a' end
  local waiter = entry.waiter ~= '' and sub(entry.waiter, 2) or nil
  local changes, token = {}, known[2]
  if known[1] ~= entry.shown then
    changes = {'places', entry.shown}
    gate.changed = true
  end
  gate.places = entry.places
  local answer, since = token, ''
  if not token and (take_turn(gate, waiter) or admits(gate, entry.places, waiter)) then
    answer = next_token()
    changes[#changes + 1], changes[#changes + 2] = member, answer
    gate.taken = gate.taken + 1
  end
  if answer then
    call('ZADD', gate.inside, format('%d', now + entry.lease), member)
    gate.changed = true
  elseif waiter then
    since = wait(gate, waiter, entry.asks, changes)
  end
  if #changes > 0 and not is_empty(gate) then call('HSET', gate.key, unpack(changes)) end
  return answer or 'w' .. since .. ',' .. ((not waiter or entry.asks > 0) and free_in(gate) or '')
end

local again = before()
if again then return again end
local entries, results = {}, {}
least = take_number()
for i = 1, check_count(take_number()) do
  local entry = {gate = take_text(), holder = take_text(), lease = take_number(), places = take_number(), waiter = take_text()}
  entry.asks, entry.shown = take_number(), format('%d', entry.places)
  entries[i] = entry
end
call('HDEL', META, '-') -- who drains a full server must get in
begin_growing()
for i, entry in ipairs(entries) do results[i] = enter(entry) end
tidy(BESIDE)
close_gates()
if last_token then call('HSET', META, 'token', format('%d', last_token)) end
return answer({format('%d', now), emptying and format('%d', token_before()) or '0', results})

-- script: keep
-- Let places end later. After what every script is told: lease in ms, how many, and of each: gate, holder, token ('+' and it; ''
-- for none). Gives: now, a string of 1 (kept), 0 (lost) and a (not here).

local again = before()
if again then return again end
local lease, held, results, emptying = take_number(), take_held(), {}, retiring()
begin_shrinking()
for i, each in ipairs(held) do
  local gate = gate_of(each.gate)
  if is_empty(gate) then
    results[i] = emptying and 'a' or '0'
  elseif holds(gate, each) then
    call('ZADD', gate.inside, format('%d', now + lease), 'h' .. each.holder)
    gate.changed, results[i] = true, '1'
  else
    results[i] = '0'
  end
end
tidy(BESIDE)
close_gates()
return answer({format('%d', now), table.concat(results)})

-- script: leave
-- Give places back, or leave the line. After what every script is told: ms that whoever is called has to enter, and after which
-- it is named again; how many, and of each: gate, holder, token ('+' and it;
-- '' of a waiter). Gives: now, a string of 1 (left), 0 (did not hold it) and a (not here); then who is called: by turns, after
-- which of these, and the waiter.

local function leave_line(gate, waiter)
  if stop_waiting(gate, waiter) == 1 then return true end
  if call('ZREM', gate.again, waiter) == 0 then return false end
  call('ZREM', gate.inside, 'c' .. waiter)
  gate.taken = gate.taken - 1
  return true
end

local function leave(gate, held)
  if held.token == '' then return leave_line(gate, held.holder) end
  if not holds(gate, held) then return false end
  call('ZREM', gate.inside, 'h' .. held.holder)
  gate.taken = gate.taken - 1
  if not is_empty(gate) then call('HDEL', gate.key, 'h' .. held.holder) end -- else all of it goes
  return true
end

local again = before()
if again then return again end
take_turns()
local held, results, called, emptying = take_held(), {}, {}, retiring()
begin_shrinking()
for i, each in ipairs(held) do
  local gate = gate_of(each.gate)
  if is_empty(gate) then
    results[i] = gate.new and emptying and 'a' or '0'
  else
    drop_silent(gate)
    local left = leave(gate, each)
    gate.changed, results[i] = gate.changed or left, left and '1' or '0'
    call_waiters(gate, MOST, function(waiter) called[#called + 1], called[#called + 2] = i - 1, waiter end)
  end
end
tidy(BESIDE)
close_gates()
return answer({format('%d', now), table.concat(results), called})

-- script: recall
-- Call the waiters of places whose lease has ended, and name those again who have not come. After what every script is told: the
-- same two times, and how many waiters at most. Gives: now, when there is something to do again ('' for never), and by turns: gate, waiter.

local LOOKS = 100 -- gates and rates that one script looks at

local again = before()
if again then return again end
take_turns()
local limit, called = check_count(take_number()), {}

local function look_at(gate)
  local function seen(waiter) called[#called + 1], called[#called + 2] = gate.name, waiter end
  clear(gate)
  drop_silent(gate)
  local late = call('ZRANGEBYSCORE', gate.again, '-inf', now, 'LIMIT', 0, limit - #called / 2)
  local times = {}
  for i, waiter in ipairs(late) do
    times[2 * i - 1], times[2 * i] = format('%d', now + soon), waiter
    seen(waiter)
  end
  if #late > 0 then call('ZADD', gate.again, unpack(times)) end
  call_waiters(gate, limit - #called / 2, seen)
  gate.changed = true
end

local found = call('ZRANGEBYSCORE', P .. 'agenda', '-inf', now, 'LIMIT', 0, LOOKS)
if #found > 0 then
  begin_shrinking()
  for _, each in ipairs(found) do
    if #called / 2 >= limit then break end
    if byte(each) == 103 then
      look_at(gate_of(sub(each, 2)))
    else
      end_rate(sub(each, 2))
    end
  end
  close_gates()
end
return tell({format('%d', now), call('ZRANGE', P .. 'agenda', 0, 0, 'WITHSCORES')[2] or '', called})

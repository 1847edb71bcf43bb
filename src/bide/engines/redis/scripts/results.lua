-- Kept results, and what dependent messages wait for: each in the shard of its message, and gone by itself when it is
-- over.
--
-- `result:` and an id has until when it is kept (6 bytes) and 'o' if it is expected; or else the token of the delivery that
-- returned it, which is one byte of length and its text, then 'd' and the value, or 'n' if it is done without one. `waiting:` and the id of a dependent message is a hash with what it waits for, and until when under an empty name.
-- `followers:` and an id is a hash with the dependent messages that wait for it, each with until when, and the latest of these
-- times under an empty name. `kept` in `meta` is the latest time until which a value is kept, for whoever wants to give the
-- shard up.

-- include: begin

local function check_count(count)
  if count > 1000 then error('BADARG count', 0) end
  return count
end

local SLACK = 60000 -- ms that keys outlive what is in them: engine time may go more slowly than the server's clock

local function ends_in(ends) return format('%d', math.max(0, ends - now) + SLACK) end

-- Letter and value, and the token.
local function stored_result(id)
  local found = call('GET', P .. 'result:' .. id)
  if not found or unpack_('>I6', found) <= now then return nil end
  local length = byte(found, 7)
  if length == 111 then return 'o', '' end
  return sub(found, 8 + length), sub(found, 8, 7 + length)
end

local function store_result(id, ends, told)
  local key = P .. 'result:' .. id
  call('SET', key, pack('>I6', ends) .. told)
  call('PEXPIRE', key, ends_in(ends))
end

-- Of the dependent messages that follow one: where the next page begins ('': this is the last), how many there are in all (0 if
-- this is the only page), and those of this page. One may be in two pages. Once a message is done, nobody begins to follow it.
local room = 1000 -- for all pages that one script tells
local function page_of(id, from)
  if room <= 0 then return {from, 0} end
  local key = P .. 'followers:' .. id
  local found = call('HSCAN', key, from, 'COUNT', room)
  local page = {found[1] ~= '0' and found[1] or '', 0}
  if page[1] ~= '' or from ~= '0' then page[2] = call('HLEN', key) - 1 end
  for i = 1, #found[2], 2 do
    if found[2][i] ~= '' then page[#page + 1] = found[2][i] end
  end
  room = room - #found[2] / 2
  return page
end

local function note_kept(latest)
  if latest > number(call('HGET', META, 'kept') or 0) then call('HSET', META, 'kept', format('%d', latest)) end
end

-- script: expect_results
-- Remember that messages were sent whose results are to be kept. After what every script is told: how many, and of each: id, until
-- when. Gives: now.

local again = before()
if again then return again end
local expected = {}
for i = 1, check_count(take_number()) do expected[i] = {id = take_text(), ends = take_number()} end
begin_shrinking()
for _, each in ipairs(expected) do
  if not stored_result(each.id) then store_result(each.id, each.ends, 'o') end
end
return tell({format('%d', now)})

-- script: fulfil_results
-- Keep what messages returned. After what every script is told: how many, and of each: id, ms, token, letter and value. Gives: now,
-- and of each a page of the dependent messages that follow it. A worker that stood still may return when another one has done the
-- same: the later delivery counts.

local again = before()
if again then return again end
local kept, latest = {}, 0
for i = 1, check_count(take_number()) do
  kept[i] = {id = take_text(), ends = now + take_number(), token = take_text(), told = take_text()}
  if #kept[i].token > 99 then error('BADARG token', 0) end
  latest = math.max(latest, kept[i].ends)
end
begin_shrinking()
note_kept(latest)
local followers = {}
for i, each in ipairs(kept) do
  local _, token = stored_result(each.id)
  if (token or '') <= each.token then store_result(each.id, each.ends, char(#each.token) .. each.token .. each.told) end
  followers[i] = page_of(each.id, '0')
end
return {format('%d', now), followers}

-- script: followers
-- Another page of those that follow a message which is done. After what every script is told: its id, and where the page begins.
-- Gives: now, and the page.

local id, from = take_text(), take_text()
if not string.find(from, '^%d+$') then error('BADARG page', 0) end
return tell({format('%d', now), page_of(id, from)})

-- script: read_results
-- After what every script is told: ids. Gives: now, and of each '', or letter and value. It stops after a megabyte of values: the
-- caller asks for the rest.

local FULL = 1048576
local found, size = {}, 0
while NEXT < #ARGV and size < FULL do
  local each = stored_result(take_text()) or ''
  found[#found + 1], size = each, size + #each
end
return tell({format('%d', now), found})

-- script: depend
-- Remember what messages wait for. After what every script is told: how many, and of each: id, until when, how many others, and
-- their ids. Gives: now.

local again = before()
if again then return again end
local dependents = {}
for i = 1, check_count(take_number()) do
  local id, ends, many = take_text(), take_number(), check_count(take_number())
  local fields = {'', format('%d', ends)}
  for _ = 1, many do fields[#fields + 1], fields[#fields + 2] = take_text(), '' end
  dependents[i] = {key = P .. 'waiting:' .. id, ends = ends, fields = fields}
end
begin_shrinking()
for _, each in ipairs(dependents) do
  if call('HLEN', each.key) == 0 then
    call('HSET', each.key, unpack(each.fields))
    call('PEXPIRE', each.key, ends_in(each.ends))
  end
end
return {format('%d', now)}

-- script: follow
-- Have dependent messages told when others are done. After what every script is told: how many, and of each: the other one, the
-- dependent one, until when. Gives: now, and a string: 1 (done), 0 (not yet), - (not known).

local again = before()
if again then return again end
local follows, told = {}, {}
for i = 1, check_count(take_number()) do
  follows[i] = {key = P .. 'followers:', id = take_text(), dependent = take_text(), ends = take_number()}
end
begin_shrinking()
for i, each in ipairs(follows) do
  local found = stored_result(each.id)
  if found and byte(found) == 111 then
    local key = each.key .. each.id
    local latest = math.max(each.ends, number(call('HGET', key, '') or 0)) -- any number of messages may wait for one
    call('HSET', key, '', format('%d', latest), each.dependent, format('%d', each.ends))
    call('PEXPIRE', key, ends_in(latest))
    told[i] = '0'
  else
    told[i] = found and '1' or '-'
  end
end
return {format('%d', now), table.concat(told)}

-- script: arrive
-- Note that messages are done. After what every script is told: how many, and of each: the dependent one, and what it waited for,
-- or '' when it was called and what it waits for is to be forgotten. Gives: now, and a string of 1 (nothing is left that it waits
-- for) and 0.

local again = before()
if again then return again end
local arrivals, ready = {}, {}
for i = 1, check_count(take_number()) do arrivals[i] = {key = P .. 'waiting:' .. take_text(), other = take_text()} end
begin_shrinking()
for i, each in ipairs(arrivals) do
  local ends = each.other ~= '' and call('HGET', each.key, '')
  if each.other ~= '' then call('HDEL', each.key, each.other) else call('UNLINK', each.key) end
  ready[i] = ends and number(ends) > now and call('HLEN', each.key) == 1 and '1' or '0'
end
return {format('%d', now), table.concat(ready)}

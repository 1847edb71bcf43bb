-- A plain message of its own for later, as most are sent, in straight lines: its topic and its slot are in use already, and clock,
-- lane and spread are as usual. All else comes to what follows; then nothing was written here.
--
-- Each field that is read costs as much as ten lines here, so it asks for few. Rights it does not ask for: without the right to
-- make the first write nothing is changed, without that to make the second one the time is stored, and the rest are like these.

local function put_lone()
  local call, byte, sub, format, pack = redis.call, string.byte, string.sub, string.format, struct.pack
  local lane, salt, topic, level, when, blob = ARGV[3], ARGV[5], ARGV[10], ARGV[11], ARGV[13], ARGV[14]
  local instant = byte(when) == 64
  local flags = (byte(blob) or 255) - (instant and 32 or 0)
  local least = flags == 0 and 1 or flags == 1 and 3 or flags == 8 and 5 or flags == 9 and 7 or math.huge -- as PLAIN has it
  if #blob < least or #salt ~= 2 or ARGV[12] ~= '1' then return nil end
  if not instant and #when < 5 then return nil end -- due in less than ten seconds, which the usual way is quicker for

  local meta = KEYS[1]
  local time, stored = call('TIME'), call('HMGET', meta, 'mark', 'layout', 'shards')
  local raw, layout = time[1] * 1000000 + time[2], stored[2]
  local us = ARGV[1] == '' and raw or ARGV[1] * 1000
  if stored[3] ~= ARGV[6] or not stored[1] or (layout ~= '3' and layout ~= '4') then return nil end
  if not (us - stored[1] >= 0 and us - ARGV[2] * 1000 >= 0) then return nil end -- the clock was moved back
  local now = (us - us % 1000) / 1000
  local ceiling = now * 1000 == us and now or now + 1
  local due = instant and tonumber(sub(when, 2)) or ceiling + when
  if not (due > now and due - now <= ARGV[8] + 0 and due % 1 == 0 and ARGV[7] - now >= 0) then return nil end
  if due - due % 65536 <= now then return nil end -- in the minute that has begun: somebody may have to be woken for it

  local prefix = sub(meta, 1, -5)
  local lanes = prefix .. 'lanes:' .. format('%d', (now - now % 600000) / 600000)
  local record, known = call('HGET', lanes, lane), call('HGET', prefix .. 'topics', topic)
  if not record or not known or struct.unpack('>I6', record) - ARGV[4] >= 0 then return nil end

  -- The coarsest calendar that has room, as in early.lua. A slot is entered when it has begun, so of others that need not be asked.
  local digits, first = string.match(known, '^%x+'), 65 + level * 8
  local own = prefix .. digits .. ':'
  local h, slots = own .. 'h', own .. 'slots'
  local kind, after, form, length, room = string.char(first), due % 134217728, '>I4', 134217728, nil
  local f = call('HMGET', h, 'live', 'far', 'c' .. kind)
  local live, name, n = f[1], nil, nil
  if not live then return nil end
  live = live + 0
  room = live < 16416 and 512 or math.min(4096, (live - live % 32) / 32)
  local start = due - after
  if start > now or start / length > (f[3] or 0) + 0 then
    name = kind .. format('%x', start / length)
    n = (call('HGET', slots, name) or 0) + 0
  end
  if not n or n >= room then
    kind, after, form, length, n = string.char(first + 1), due % 4194304, '>I3', 4194304, nil
    start = due - after
    if start > now or start / length > (call('HGET', h, 'c' .. kind) or 0) + 0 then
      name = kind .. format('%x', start / length)
      n = (call('HGET', slots, name) or 0) + 0
    end
    if not n or n >= room then
      kind, after, form, length = string.char(first + 2), due % 65536, '>I2', 65536
      start = due - after
      name = kind .. format('%x', start / length)
      n = (call('HGET', slots, name) or 0) + 0
      if n >= 16384 then return nil end
    end
  end
  if n == 0 then return nil end
  if start <= now then -- somebody may have to be woken for it
    if call('LLEN', prefix .. 'w:' .. topic) == 0 or call('HGET', meta, 'expiry') then return nil end
    local waits = call('HMGET', h, 'next', 'paused')
    if (waits[2] or '0') ~= '0' or start < (waits[1] or 0) + 0 then return nil end
  end

  local mark = format('%d', us)
  call('HSET', meta, 'raw', us == raw and mark or format('%d', raw), 'mark', mark)
  call('RPUSH', own .. 'b' .. name .. format(':%x', (n - n % 64) / 64), salt .. pack(form, after) .. blob)
  call('HSET', slots, name, format('%d', n + 1))
  call('HSET', h, 'live', format('%d', live + 1), 'far', format('%d', (f[2] or 0) + 1))
  local told, id = sub(mark, 1, -4), pack('>c1I6I3', kind, start / length, n)
  local rounded = ceiling == now and told or format('%d', ceiling)
  -- as cmsgpack packs the answer, in a third of the time
  local text, other = pack('>I6BB', ARGV[4], 149, 160 + #told) .. told, string.char(160 + #rounded) .. rounded
  call('HSET', lanes, lane, text .. other .. '\162' .. salt .. '\146' .. string.char(160 + #digits) .. digits .. '\170' .. id .. '\144')
  return {told, rounded, salt, {digits, id}, {}}
end

if ARGV[9] == '1' and #ARGV == 14 then
  local placed = put_lone()
  if placed then return placed end
end

-- Where messages live.
--
-- A message's home is a place in a list, a bucket of 64, from send to end: kind (1 byte), slot (6) and number (3) tell
-- which, and are its id in its topic. With the topic's number before them they are its full id.
-- Of each level of priority there are six calendars, of slots from 37 hours down to a millisecond, and two rows: of what
-- is near, and of what was ready when it came. Together they are the kinds of homes, a letter each: level * 8 + sort.

local COARSE, MINUTE, FINEST, NEAR, READY = 0, 2, 5, 6, 7 -- the sorts that have names; a slot of MINUTE is 65.5 seconds
local SLOT = {[0] = 134217728, 4194304, 65536, 2048, 64, 1} -- ms, by sort
local FORM = {[0] = '>I4', '>I3', '>I2', '>I2', '>I1', '', '>I6', '>I6'} -- of a due time: from the start of its slot; in a row, as it is
local FLAGS_AT = {[0] = 7, 6, 5, 5, 4, 3, 9, 9} -- where in a value the flags are, behind salt and due time
local FEW, SOME = 512, 4096
local NUMBERS = 16777216 -- as many as an id can tell apart in one slot
local ROOM = {[0] = FEW, FEW, SOME, SOME, SOME, NUMBERS} -- messages in a slot
local BUCKET = 64
local ROW = 1048576 -- numbers of a row that share a slot

local FIRST, LAST = byte('A'), byte('X') -- of the kinds
local LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWX'
local function kind_of(level, sort) return sub(LETTERS, level * 8 + sort + 1, level * 8 + sort + 1) end
local function level_of(kind) return floor((byte(kind) - FIRST) / 8) end
local function sort_of(kind) return (byte(kind) - FIRST) % 8 end
local function is_kind(text) return byte(text) >= FIRST and byte(text) <= LAST end -- also of what begins with one

local TOPIC, ID, FULLID = 5, 10, 15 -- bytes

local function home(id)
  local kind, slot, n = unpack_('>c1I6I3', id)
  return kind, slot, n
end
local function id_of(kind, slot, n) return pack('>c1I6I3', kind, slot, n) end

local function slot_name(kind, slot) return kind .. format('%x', slot) end

local function bucket_of(topic, kind, slot, n)
  return topic.prefix .. 'b' .. kind .. format('%x:%x', slot, floor(n / BUCKET))
end
local function large_of(topic, id)
  local kind, slot, n = home(id)
  return topic.prefix .. 'm' .. kind .. format('%x:%x', slot, n)
end

-- When the message of a value was due when it was sent, in a slot that begins at `start` (0 in a row).
local function due_from(start, sort, value)
  if sort == FINEST then return start end
  return start + unpack_(FORM[sort], value, 3)
end

local function full_of(topic, id) return topic.head .. id end
local function parts_of(full) return format('%x', (unpack_('>I5', full))), sub(full, TOPIC + 1) end

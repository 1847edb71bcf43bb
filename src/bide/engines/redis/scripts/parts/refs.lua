-- Messages as they are named from outside: ('id', topic's number, id, salt) or ('key', topic, key, '').

local function take_ref()
  local ref = {how = take_text(), topic = take_text(), id = take_text(), salt = take_text()}
  if ref.how ~= 'key' and (ref.how ~= 'id' or #ref.id ~= ID or not is_kind(ref.id)) then error('BADARG id', 0) end
  return ref
end

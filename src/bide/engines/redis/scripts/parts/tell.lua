-- What a script answers that may write nothing else: time would stand still if such scripts only told it.
local function tell(reply)
  if unknown then begin_shrinking() end
  return reply
end

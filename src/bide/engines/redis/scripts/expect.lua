-- From now on a wake-up is also a key that expires, since somebody listens for that. Gives: now.

-- include: begin once tell

if not stored[4] then
  begin_shrinking()
  call('HSET', META, 'expiry', '1')
end
return tell({format('%d', now)})

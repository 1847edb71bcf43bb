-- From now on a wake-up is also a key that expires, since somebody listens for that. Gives: now.

-- include: begin

begin_growing()
call('HSET', META, 'expiry', '1')
return {format('%d', now)}

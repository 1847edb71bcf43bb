-- Say how many shards there are. Gives: now.

-- include: begin

begin_shrinking()
return {format('%d', now)}

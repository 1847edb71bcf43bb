-- Tell the time. Gives: now.

-- include: begin

return {format('%d', now)}

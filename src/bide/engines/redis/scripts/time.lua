-- Tell the time. Gives: now.

-- include: begin tell

return tell({format('%d', now)})

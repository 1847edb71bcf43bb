-- Due times that are instants: they wait for the machine's clock, also while it is behind engine time.
-- A release that does not know of it leaves it as it is when it gives a message another time: it may come late then.

alter table message add column instant integer;  -- 1: its due time is one

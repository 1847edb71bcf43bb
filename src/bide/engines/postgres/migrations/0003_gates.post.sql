-- Moves have an origin now.

drop function if exists bide.reschedule(text, bigint[], text[], text[], bigint[], bigint[], bigint, bigint);

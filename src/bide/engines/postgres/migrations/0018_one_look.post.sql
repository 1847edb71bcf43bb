-- A claim asks for all priorities together now.

drop function if exists bide.due_ids(text, int, bigint, int, bigint, bigint);

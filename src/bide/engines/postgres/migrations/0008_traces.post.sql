-- Ends have records now, and get tells them.

drop function if exists bide.get(bigint[], text[], text[], bigint);
drop function if exists bide.bury(bigint, text, bigint);
drop function if exists bide.return_to(bigint, bigint, int, text, bigint, bigint);
drop function if exists bide.end_all(text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bigint, bigint);

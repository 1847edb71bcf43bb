-- Functions that only those of older releases called, and what these called to end deliveries.

drop function if exists bide.found(bigint, text, text, bigint);
drop function if exists bide.by_ids(bigint[], bigint);
drop function if exists bide.estimated(text, bigint, bigint);
drop function if exists bide.conclude(
    text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bytea[], bigint, bigint
);

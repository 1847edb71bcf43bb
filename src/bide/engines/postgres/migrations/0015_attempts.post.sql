-- Ends tell of attempts now.

drop function if exists bide.end_each(
    text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bytea[], boolean, bigint, bigint
);

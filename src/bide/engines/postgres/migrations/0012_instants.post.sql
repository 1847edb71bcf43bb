-- What puts, claims and moves is told the server's clock now.

drop function if exists
    bide.put_one(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint),
    bide.put_only(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint),
    bide.put_named(bigint[], text[], bytea[], bigint[], int[], int[], bigint[], text[], text[], bigint),
    bide.due_ids(text, int, bigint, int, bigint),
    bide.chosen(text, bigint, int, bigint),
    bide.move_by_ids(bigint[], bigint[], bigint[], text[], bigint, bigint, boolean),
    bide.moved_to(bigint, bigint, bigint, bigint, text, bigint, bigint);

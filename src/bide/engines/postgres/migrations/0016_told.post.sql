-- What is looked at, and the order of locks, tell that themselves now; what was seen is compared where it is moved.

drop function if exists
    bide.holders(bigint[]),
    bide.in_order(bigint[], text[], text[]),
    bide.named_one(bigint, text, text, bigint),
    bide.move_by_ids(bigint[], bigint[], bigint[], text[], bigint, bigint, bigint, boolean);

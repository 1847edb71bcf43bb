-- What is looked at, and the order of locks, tell that themselves now.

drop function if exists bide.holders(bigint[]), bide.in_order(bigint[], text[], text[]);

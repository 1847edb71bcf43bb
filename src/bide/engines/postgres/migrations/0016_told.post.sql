-- What is looked at tells that itself now.

drop function if exists bide.holders(bigint[]);

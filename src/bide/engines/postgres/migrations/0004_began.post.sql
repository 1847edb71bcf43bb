-- Claims tell when the first attempt began, and ends are told.

drop function if exists bide.claim(text[], bigint[], int, bigint, text, text[], bigint);
drop function if exists bide.settle(text, bigint[], text[], bigint[], text[], bigint[], text[], bigint, bigint);
drop function if exists bide.come_back(bigint, bigint, int, text, bigint);

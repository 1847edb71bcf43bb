alter table bide.message add column began bigint;  -- its first attempt, once it has come back from one

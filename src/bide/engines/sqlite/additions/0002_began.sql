-- When the first attempt began, of a message that has come back from one since it was last given a time.

alter table message add column began integer;

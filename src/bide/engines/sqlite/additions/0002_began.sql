-- When the first attempt began, of a message that has come back from one since it was last given a time.

alter table message add column began integer;

-- A release that does not know of it gives a message a new time so: its due time moves, and it has waited since then.
create trigger bide_began_anew after update of since on message
when new.began is not null and new.since is null and new.due <> old.due begin
    update message set began = null where id = new.id;
end;

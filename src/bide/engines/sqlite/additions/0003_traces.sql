-- Records of attempts that failed. They go with their message, also when the release before ends it.

create table bide_trace (
    message integer primary key,
    records blob not null        -- as traces.py has them
);

alter table message add column traced integer;  -- 1: it has records

create trigger bide_traced_ends after delete on message when old.traced is not null begin
    delete from bide_trace where message = old.id;
end;

create trigger bide_traced_anew after update of traced on message when new.traced is null and old.traced is not null begin
    delete from bide_trace where message = old.id;
end;

-- A release that does not know of them replaces a message; nothing else sets how many attempts it has.
create trigger bide_traced_replaced after update of most on message when new.traced is not null begin
    update message set traced = null where id = new.id;
end;

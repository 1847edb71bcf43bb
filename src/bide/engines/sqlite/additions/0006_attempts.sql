-- A retry may give a message more attempts, and it keeps its records. Only what replaces a message sets its level.

drop trigger bide_traced_replaced;
create trigger bide_traced_replaced after update of level on message when new.traced is not null begin
    update message set traced = null where id = new.id;
end;

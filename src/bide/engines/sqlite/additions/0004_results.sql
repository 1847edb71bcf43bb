-- Kept results, and what dependent messages wait for. Times are milliseconds since the epoch.

create table bide_result (
    space text not null,         -- the namespace
    message text not null,       -- its id
    until integer not null,      -- it is forgotten then
    done integer not null,       -- 0: it is expected
    value blob,                  -- null of one that is done: it could not be kept
    token text not null,         -- of the delivery that returned it
    primary key (space, message)
) without rowid;

create index bide_result_until on bide_result (space, until);

create table bide_waiting (      -- one row for each message that a dependent one waits for
    space text not null,
    message text not null,       -- the dependent one
    other text not null,         -- what it waits for
    arrived integer not null,
    until integer not null,
    primary key (space, message, other)
) without rowid;

create index bide_waiting_other on bide_waiting (space, other);
create index bide_waiting_until on bide_waiting (space, until);

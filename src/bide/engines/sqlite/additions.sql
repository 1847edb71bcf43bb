-- Tables, columns that may be null, and triggers, in order: a release before them passes over them.

-- step: 0001_gates
create table bide_added (        -- one row
    number integer not null      -- of the last addition that the file has
);

insert into bide_added values (1);

-- Gates: who is in, who is called, who waits, and what has begun. Times are milliseconds since the epoch.

create table bide_gate (         -- while anybody is in it or waits
    id integer primary key,
    space text not null,         -- the namespace
    name text not null,
    places integer not null,     -- as the last entry had it
    taken integer not null,      -- places that are held, or kept for a waiter that was called
    waiting integer not null,    -- in line, without those that were called
    ends integer not null,       -- no lease and no turn ends before
    next integer not null,       -- nothing is to be recalled before
    asks_by integer not null,    -- no waiter has to ask again before
    unique (space, name)
);

create index bide_gate_next on bide_gate (space, next);

create table bide_gate_place (
    gate integer not null,
    holder text not null,
    token integer not null,
    until integer not null,      -- the end of the lease
    primary key (gate, holder)
) without rowid;

create table bide_gate_line (
    id integer primary key,      -- the order of the line
    gate integer not null,
    waiter text not null,
    since integer not null,
    until integer,               -- the end of the turn; null: not called yet
    again integer,               -- when it is to be named again
    asks_by integer              -- by when it has to ask again, or has died; null: it does not ask, or was called
);

create unique index bide_gate_waiter on bide_gate_line (gate, waiter);
create index bide_gate_first on bide_gate_line (gate, id) where until is null;
create index bide_gate_asking on bide_gate_line (gate, asks_by) where asks_by is not null;
create index bide_gate_called on bide_gate_line (gate, id) where until is not null;

create table bide_gate_rate (
    space text not null,
    name text not null,
    next integer not null,       -- when nothing of it counts any more
    spending blob not null,      -- a Spending, as MessagePack
    primary key (space, name)
) without rowid;

create index bide_gate_rate_next on bide_gate_rate (space, next);

create table bide_gate_instant ( -- to come, and kept for somebody
    space text not null,
    name text not null,          -- of the rate
    holder text not null,
    at integer not null,
    primary key (space, name, holder)
) without rowid;

create index bide_gate_instant_at on bide_gate_instant (space, name, at);

-- step: 0002_began
-- When the first attempt began, of a message that has come back from one since it was last given a time.

alter table message add column began integer;

-- A release that does not know of it gives a message a new time so: its due time moves, and it has waited since then.
create trigger bide_began_anew after update of since on message
when new.began is not null and new.since is null and new.due <> old.due begin
    update message set began = null where id = new.id;
end;

-- step: 0003_traces
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

-- step: 0004_results
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

-- step: 0005_instants
-- Due times that are instants: they wait for the machine's clock, also while it is behind engine time.
-- A release that does not know of it leaves it as it is when it gives a message another time: it may come late then.

alter table message add column instant integer;  -- 1: its due time is one

-- step: 0006_attempts
-- A retry may give a message more attempts, and it keeps its records. Only what replaces a message sets its level.

drop trigger bide_traced_replaced;
create trigger bide_traced_replaced after update of level on message when new.traced is not null begin
    update message set traced = null where id = new.id;
end;

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

-- Gates: who is in, who is called, who waits, and what has begun. Each verb locks the rows of its gates first.

create table bide.gate (              -- until a while after nobody is in it and nobody waits: most gates are used again soon
    name text collate "C" not null,
    next bigint not null default 9223372036854775807,  -- nothing is to be recalled before
    ends bigint not null default 9223372036854775807,  -- no lease and no turn ends before
    token bigint not null default 0,  -- of the last entry
    number bigint not null default 0, -- of the last waiter
    places bigint not null default 0, -- as the last entry had it
    taken bigint not null default 0,  -- places that are held, or kept for a waiter that was called
    waiting bigint not null default 0,  -- in line, without those that were called
    asks_by bigint not null default 9223372036854775807,  -- no waiter has to ask again before
    constraint gate_pkey primary key (name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index gate_next on bide.gate (next);

create table bide.gate_place (
    gate text collate "C" not null,
    holder text collate "C" not null,
    token bigint not null,
    until bigint not null,            -- the end of the lease
    constraint gate_place_pkey primary key (gate, holder)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create table bide.gate_line (
    gate text collate "C" not null,
    waiter text collate "C" not null,
    number bigint not null,           -- the order of the line
    since bigint not null,
    until bigint,                     -- the end of the turn; null: not called yet
    again bigint,                     -- when it is to be named again
    asks_by bigint,                   -- by when it has to ask again, or has died; null: it does not ask, or was called
    constraint gate_line_pkey primary key (waiter, gate)  -- so that nobody walks along it by the gate
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index gate_first on bide.gate_line (gate, number) where until is null;
create index gate_asking on bide.gate_line (gate, asks_by) where asks_by is not null;
create index gate_called on bide.gate_line (gate, number) where until is not null;

create table bide.gate_rate (         -- what has begun: see core/rate.py
    name text collate "C" not null,
    next bigint not null,             -- something of it counts until then, or longer
    most bigint not null,
    span bigint not null,             -- the window, ms
    ended bigint[] not null default '{}',  -- the last instant of each full group, oldest first
    last bigint not null default 0,
    filled bigint not null default 0, -- of the group that is not full
    carried bigint not null default 0,  -- what had begun at another rate,
    until bigint not null default 0,  -- and counts until then
    constraint gate_rate_pkey primary key (name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index gate_rate_next on bide.gate_rate (next);

create table bide.gate_instant (      -- to come, and kept for somebody
    rate text collate "C" not null,
    holder text collate "C" not null,
    at bigint not null,
    constraint gate_instant_pkey primary key (rate, holder)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index gate_instant_at on bide.gate_instant (rate, at);

-- Kept results, and what dependent messages wait for.

create table bide.result (
    message text collate "C" not null,  -- its id
    until bigint not null,              -- it is forgotten then
    done boolean not null,              -- false: it is expected
    value bytea,                        -- null of one that is done: it could not be kept
    token text collate "C" not null default '',  -- of the delivery that returned it
    constraint result_pkey primary key (message)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index result_until on bide.result (until);

create table bide.waiting (             -- one row for each message that a dependent one waits for
    message text collate "C" not null,  -- the dependent one
    other text collate "C" not null,    -- what it waits for
    arrived boolean not null default false,
    until bigint not null,
    constraint waiting_pkey primary key (message, other)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index waiting_other on bide.waiting (other);
create index waiting_until on bide.waiting (until);

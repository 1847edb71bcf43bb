-- What leads from an empty schema to the present one, in order: see layout.py. A part with .post.sql removes what only older
-- releases used.

-- migration: 0001_first.sql
-- A message is one row from send to end. Times are milliseconds since the epoch, in the engine's time.
-- `bide` stands for the schema of a namespace.

create table bide.layout (    -- one row
    number integer not null,      -- of the last migration that was run
    finished integer not null     -- of the last one whose second part was run
);
insert into bide.layout values (1, 1);

create sequence bide.ids as bigint minvalue 1 maxvalue 140737488355327;  -- 47 bits; 16 random bits make an id of each

create table bide.message (
    id bigint not null,
    due bigint not null,
    until bigint,                     -- the end of the lease; null: pending
    token bigint,                     -- of the last delivery
    attempt integer not null default 0,
    most integer not null,            -- attempts
    level smallint not null,          -- of priority: 0 high, 1 normal, 2 low
    topic text collate "C" not null,
    body bytea not null,
    headers text,                     -- a JSON object
    key text collate "C",             -- null, too, when a successor took it over
    life bigint,                      -- from due to expires
    expires bigint,
    since bigint,                     -- when it first fell due, where that is not its due time
    request text collate "C",         -- that claimed it; null when pending
    error text,
    constraint message_pkey primary key (id)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.1
);

create index message_due on bide.message (topic, level, due, id) where until is null;
create index message_lease on bide.message (until) where until is not null;
create index message_request on bide.message (request) where request is not null;
create index message_expires on bide.message (expires) where until is null and expires is not null;
create unique index message_key on bide.message (topic, key) where key is not null;

create table bide.dead (
    id bigint not null,
    died bigint not null,
    due bigint not null,
    attempt integer not null,
    most integer not null,
    level smallint not null,
    topic text collate "C" not null,
    body bytea not null,
    headers text,
    key text collate "C",
    life bigint,
    expires bigint,
    token bigint,                     -- the next delivery's is higher
    error text,
    constraint dead_pkey primary key (id)
);

create index dead_topic on bide.dead (topic, died, id);
create index dead_died on bide.dead (died);

create table bide.topic (             -- only those that were paused
    name text collate "C" not null,
    paused boolean not null default false,
    constraint topic_pkey primary key (name)
);

create table bide.tally (             -- changes of the numbers of dead letters: a row of each topic would be locked by who changes it
    topic text collate "C" not null,
    dead bigint not null,
    dropped bigint not null,          -- dead letters that were not kept
    summed boolean not null default false  -- by tend
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index tally_topic on bide.tally (topic);
create index tally_new on bide.tally (topic) where not summed;

create table bide.answer (            -- what was answered to an operation, for when it is asked again
    name text collate "C" not null,
    born bigint not null,
    answers text[] not null,
    constraint answer_pkey primary key (name)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index answer_born on bide.answer (born);

-- Engine time never goes back, also when the server's clock does. Sequences hold it, since they take no row locks, are not
-- undone by a rollback, and leave no dead rows. Microseconds.
create sequence bide.mark as bigint minvalue 0 start 0;  -- the latest time that was stored
create sequence bide.raw as bigint minvalue 0 start 0;   -- the server's clock then
create sequence bide.turn as bigint minvalue 0 start 0 cycle;  -- of claims among several priorities

-- migration: 0002_dead_letters.sql
-- Dead letters by their ids: functions only.

-- migration: 0003_gates.sql
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

-- migration: 0003_gates.post.sql
-- Moves have an origin now.

drop function if exists bide.reschedule(text, bigint[], text[], text[], bigint[], bigint[], bigint, bigint);

-- migration: 0004_began.sql
alter table bide.message add column began bigint;  -- its first attempt, once it has come back from one

-- migration: 0004_began.post.sql
-- Claims tell when the first attempt began, and ends are told.

drop function if exists bide.claim(text[], bigint[], int, bigint, text, text[], bigint);
drop function if exists bide.settle(text, bigint[], text[], bigint[], text[], bigint[], text[], bigint, bigint);
drop function if exists bide.come_back(bigint, bigint, int, text, bigint);

-- migration: 0005_max_wait.sql
-- The functions that send have one more option.

drop function if exists bide.send(text, jsonb, interval, timestamptz, text, text, text, jsonb, int, interval, text, int);
drop function if exists bide.send_bytes(text, bytea, interval, timestamptz, text, text, text, jsonb, int, interval, text, int);

-- migration: 0006_unique_for.sql
-- The functions that send have one more option.

drop function if exists
    bide.send(text, jsonb, interval, timestamptz, text, text, text, jsonb, int, interval, text, int, interval);
drop function if exists
    bide.send_bytes(text, bytea, interval, timestamptz, text, text, text, jsonb, int, interval, text, int, interval);

-- migration: 0007_merge.sql
-- Functions only: bodies that are merged.

-- migration: 0008_traces.sql
-- Records of attempts that failed, oldest first.

alter table bide.message add column traces bytea[];
alter table bide.dead add column traces bytea[];

-- migration: 0008_traces.post.sql
-- Ends have records now, and get tells them.

drop function if exists bide.get(bigint[], text[], text[], bigint);
drop function if exists bide.bury(bigint, text, bigint);
drop function if exists bide.return_to(bigint, bigint, int, text, bigint, bigint);
drop function if exists bide.end_all(text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bigint, bigint);

-- migration: 0009_results.sql
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

-- migration: 0010_past.sql
-- Functions only: messages that had attempts elsewhere, and dead letters, as they were.

-- migration: 0011_cancel_seen.sql
-- Functions only: messages that end together, if they are as they were seen.

-- migration: 0012_instants.sql
alter table bide.message add column by_clock boolean;  -- true: its due time is an instant, and waits for the server's clock

-- migration: 0012_instants.post.sql
-- What puts, claims and moves is told the server's clock now.

drop function if exists
    bide.put_one(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint),
    bide.put_only(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint),
    bide.put_named(bigint[], text[], bytea[], bigint[], int[], int[], bigint[], text[], text[], bigint),
    bide.due_ids(text, int, bigint, int, bigint),
    bide.chosen(text, bigint, int, bigint),
    bide.move_by_ids(bigint[], bigint[], bigint[], text[], bigint, bigint, boolean),
    bide.moved_to(bigint, bigint, bigint, bigint, text, bigint, bigint);

-- migration: 0013_safe_names.sql
-- Functions only: they find operators and functions in pg_catalog alone, whatever others have made in the schema public.

-- migration: 0013_safe_names.post.sql
-- Functions that only those of older releases called, and what these called to end deliveries.

drop function if exists bide.found(bigint, text, text, bigint);
drop function if exists bide.by_ids(bigint[], bigint);
drop function if exists bide.estimated(text, bigint, bigint);
drop function if exists bide.conclude(
    text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bytea[], bigint, bigint
);

-- migration: 0014_free_in.sql
-- Functions only: who finds no place at a gate is told when one is free.

-- migration: 0015_attempts.sql
-- Functions only: a retry may give a message more attempts.

-- migration: 0015_attempts.post.sql
-- Ends tell of attempts now.

drop function if exists bide.end_each(
    text, bigint[], text[], bigint[], text[], bigint[], text[], bigint[], bytea[], boolean, bigint, bigint
);

-- migration: 0016_told.sql
-- Functions only: a claim tells the server's clock; what is looked at tells since when it waits, and what it is leased by.

-- migration: 0016_told.post.sql
-- What is looked at, and the order of locks, tell that themselves now; what was seen is compared where it is moved.

drop function if exists
    bide.holders(bigint[]),
    bide.in_order(bigint[], text[], text[]),
    bide.named_one(bigint, text, text, bigint),
    bide.move_by_ids(bigint[], bigint[], bigint[], text[], bigint, bigint, bigint, boolean);

-- migration: 0017_free_keys.sql
-- Functions only: of a batch, all messages whose keys are free are stored at once.

-- migration: 0018_one_look.sql
-- Functions only: a claim looks once for the due messages of all priorities.

-- migration: 0018_one_look.post.sql
-- A claim asks for all priorities together now.

drop function if exists bide.due_ids(text, int, bigint, int, bigint, bigint);

-- migration: 0019_put_plain.sql
-- Functions only: one message without a key is put in few statements.

-- migration: 0020_any_due.sql
-- Functions only: a row that was written by hand, due at the first instant there is, does not end upkeep.

-- migration: 0021_late_plans.sql
-- Functions only: what tells of late messages makes no plan that reads the whole table.

-- migration: 0022_fewer_looks.sql
-- Functions only: claims, ends and what is told of take fewer statements.

-- migration: 0023_rules.sql
-- Functions only: what a rule for a taken key needs comes in arguments of its own.

-- migration: 0023_rules.post.sql
-- A send tells each of them apart now.

drop function if exists
    bide.put_one(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint, bigint, boolean),
    bide.put_only(bigint, text, bytea, bigint, int, int, bigint, text, text, text, bigint, bigint, bigint, boolean),
    bide.with_first(jsonb);

-- migration: 0024_stats_in_pieces.sql
-- Functions only: topics are counted some at a time.

-- migration: 0025_fewer_verbs.sql
-- Functions only: that a dependent message was called is told by `arrive`; upkeep
-- removes results that are over, and takes back places at gates.

-- migration: 0025_fewer_verbs.post.sql
-- What `arrive` does now.

drop function if exists bide.forget_waiting(text[]);

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

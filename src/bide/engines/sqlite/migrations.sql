-- What leads from an empty file to the present layout, in order. A release refuses a layout that it does not know.

-- step: 0001_first
-- A message is one row from send to end. Times are milliseconds since the epoch.

create table topic (
    id integer primary key autoincrement,  -- never used twice, so that a stale one can't mean another topic
    space text not null,                   -- the namespace
    name text not null,
    paused integer not null default 0,
    dropped integer not null default 0,    -- dead letters that were not kept
    unique (space, name)
);

create table message (
    id integer primary key autoincrement,
    salt integer not null,       -- so that an id from a copy of this file is not another message here
    topic integer not null,
    stage integer not null,      -- 0 pending, 1 leased, 2 dead
    level integer not null,      -- of priority: 0 high, 1 normal, 2 low
    due integer not null,
    attempt integer not null default 0,
    most integer not null,       -- attempts
    body blob,                   -- null: in the table large
    headers text,                -- a JSON object
    key text,                    -- null too when a successor took it over
    life integer,                -- from due to expires
    expires integer,
    token integer,               -- of the claim that holds it
    request text,                -- that made that claim
    until integer,               -- the end of the lease
    died integer,
    error text
);

create table large (
    id integer primary key,      -- of its message: a row that is rewritten often should be short
    body blob not null
);

create index message_due on message (topic, level, due) where stage = 0;
create index message_lease on message (until) where stage = 1;
create index message_request on message (request) where stage = 1 and request is not null;
create index message_expires on message (expires) where stage = 0 and expires is not null;
create index message_dead on message (topic, died) where stage = 2;
create index message_leased on message (topic, due) where stage = 1;
create unique index message_key on message (topic, key) where key is not null and stage < 2;

create table operation (
    space text not null,
    name text not null,
    born integer not null,
    message text not null,
    topic text not null,
    due integer not null,
    outcome text not null,
    primary key (space, name)
) without rowid;

create index operation_born on operation (born);

create table engine (
    space text primary key,
    raw integer not null,        -- the wall clock when last read, nanoseconds
    mark integer not null,       -- the engine's time then
    claims integer not null      -- the last token that was given
) without rowid;

-- step: 0002_since
-- When a message first fell due, where retry or release has moved its due time since; null: at its due time.

alter table message add column since integer;

-- step: 0003_numbers
-- AUTOINCREMENT writes a page of its own with each message. Here the highest number is kept only when its message ends.

create table message_ended (
    id integer primary key check (id = 1),  -- one row
    highest integer not null                -- the highest of the messages that have ended, or lower than one that has not
);

insert into message_ended select 1, coalesce(max(seq), 0) from sqlite_sequence where name = 'message';

create table message_of_0003 (
    id integer primary key,      -- higher than all before, as `put` sees to
    salt integer not null,       -- so that an id from a copy of this file is not another message here
    topic integer not null,
    stage integer not null,      -- 0 pending, 1 leased, 2 dead
    level integer not null,      -- of priority: 0 high, 1 normal, 2 low
    due integer not null,
    attempt integer not null default 0,
    most integer not null,       -- attempts
    body blob,                   -- null: in the table large
    headers text,                -- a JSON object
    key text,                    -- null too when a successor took it over
    life integer,                -- from due to expires
    expires integer,
    token integer,               -- of the claim that holds it
    request text,                -- that made that claim
    until integer,               -- the end of the lease
    died integer,
    error text,
    since integer                -- when it first fell due, where that is not its due time
);

insert into message_of_0003
select id, salt, topic, stage, level, due, attempt, most, body, headers, key, life, expires, token, request, until, died, error,
    since
from message;

drop table message;
alter table message_of_0003 rename to message;

create index message_due on message (topic, level, due) where stage = 0;
create index message_lease on message (until) where stage = 1;
create index message_request on message (request) where stage = 1 and request is not null;
create index message_expires on message (expires) where stage = 0 and expires is not null;
create index message_dead on message (topic, died) where stage = 2;
create index message_leased on message (topic, due) where stage = 1;
create unique index message_key on message (topic, key) where key is not null and stage < 2;

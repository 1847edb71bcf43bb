-- The tables of all recipes, without what they don't need.
create table if not exists orders (number integer primary key, state text not null, extended integer not null default 0);
create table if not exists users (name text primary key, zone text not null default 'UTC', visits integer not null default 0);
create table if not exists sessions (id text primary key, user text not null);
create table if not exists rides (id integer primary key, x real, y real, state text not null, driver text);
create table if not exists drivers (name text primary key, x real, y real);
create table if not exists offers (ride integer, driver text, primary key (ride, driver));
create table if not exists pages (id integer primary key, text text not null, version integer not null default 1);
create table if not exists search (page integer primary key, text text not null, version integer not null);
create table if not exists devices (name text primary key, state text not null, plan integer not null default 0);
create table if not exists sales (id integer primary key, starts real, ends real, stock integer, state text not null);
create table if not exists purchases (sale integer, customer text, primary key (sale, customer));
create table if not exists likes (user text, post integer, primary key (user, post));
create table if not exists posts (id integer primary key, likes integer not null default 0);
create table if not exists refunds (id text primary key, asked integer not null);
create table if not exists groups (id integer primary key, needed integer not null, state text not null);
create table if not exists members (team integer, customer text, primary key (team, customer));
-- What went out to customers: sent twice, stored once, as with a mail service's idempotency key.
create table if not exists mails (what text primary key);

-- When a message first fell due, where retry or release has moved its due time since; null: at its due time.

alter table message add column since integer;

"""The Redis engine for event loops. `redis/sync` is made from it."""

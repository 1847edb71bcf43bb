"""The async Redis engine. `redis/sync` is generated from it."""

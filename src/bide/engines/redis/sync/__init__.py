"""The Redis engine for threads, made from `redis/aio` by tools/unasync.py."""

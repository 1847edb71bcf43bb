"""The steps of the road for threads, made from `run/aio` by tools/unasync.py."""

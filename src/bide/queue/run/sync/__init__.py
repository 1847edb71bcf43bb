"""The queue for threads, made from `queue/aio` by tools/unasync.py."""

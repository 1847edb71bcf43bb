"""The same for threads, made from `history/aio` by tools/unasync.py."""

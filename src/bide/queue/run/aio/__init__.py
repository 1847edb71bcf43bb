"""The queue for event loops. `queue/sync` is made from it."""

"""The steps of the road for event loops. `run/sync` is made from it."""

"""Shards: each holds whole messages, and all that belongs to them, under one hash tag."""

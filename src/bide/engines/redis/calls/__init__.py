"""Calls: how the scripts of a shard are run."""

"""Ears: how a sleeper hears that something may be due."""

"""Talks to the server, async. The same, sync, is made from it."""

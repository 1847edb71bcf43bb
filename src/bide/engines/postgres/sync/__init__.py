"""Talks to the server, sync. Made from bide.engines.postgres.aio."""

"""The recipes with Dramatiq on Redis."""

"""The recipes of the docs beside the same things built with Celery and with Dramatiq: that all run, and their lines."""

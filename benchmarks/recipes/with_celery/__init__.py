"""The recipes with Celery on Redis."""

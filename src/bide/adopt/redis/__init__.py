"""Sources in Redis: sorted sets, lists, and the queues of BullMQ, Celery and RQ."""

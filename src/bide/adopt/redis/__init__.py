"""Sources in Redis: sorted sets, lists, jobs in a hash, and queues of BullMQ."""

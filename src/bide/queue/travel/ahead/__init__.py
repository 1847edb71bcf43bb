"""What time travel has before it: where to stop next, and what has fallen due without a task for it."""

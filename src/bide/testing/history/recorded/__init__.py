"""A queue that writes down its calls, in both colours."""

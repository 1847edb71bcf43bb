"""Ten faults of delay queues that are written by hand, a program each. docs/mistakes.md explains them."""

"""A queue from its making to its end: what is opened, when, and what is seen through at close."""

"""Schedules: tasks that are sent by themselves. What they are, what is stored about them, and what to do about that."""

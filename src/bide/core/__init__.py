"""Decisions that need no input or output: pencil and paper would do. Time is always an argument."""

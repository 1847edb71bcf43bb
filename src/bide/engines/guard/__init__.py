"""What stands before every engine: it refuses what the engine can't do, and tells hooks of every call."""

"""Time travel for tests: move the queue's clock, and have what falls due on the way handled."""

"""The ways to delay a message, measured on the same work in one run: `python -m benchmarks.roads`."""

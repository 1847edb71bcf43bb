"""What the docs' figures come from: `python -m benchmarks` runs all, with names only those."""

"""Applications to copy from: each is complete, small, and tested."""

"""What benchmarks.lateness_at_worst needs: receivers to kill, and servers to freeze, fail over, or take wake-ups from."""

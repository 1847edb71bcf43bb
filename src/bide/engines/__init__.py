"""Where messages live. `aio` is the seam that every engine fills in; `registry` finds the engine for a URL."""

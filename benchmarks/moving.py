"""`python -m benchmarks.moving`: a million messages moved from SQLite to Redis, to PostgreSQL and back, the mover killed.

Senders and workers go on at both ends of each move. It prints how fast the messages moved, and what became of them.
"""

import sys

from tests.move.chain import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.worker_chaos`: workers on one SQLite file or, with `--url`, one server, killed, stopped and asked to end at random.

It prints what was done to them, and the verdict on what they have seen. `--help` lists the parameters.
"""

import sys

from tests.worker.chaos import main

if __name__ == "__main__":
    sys.exit(main())

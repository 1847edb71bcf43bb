"""`python -m benchmarks.worker_chaos`: workers killed, stopped and asked to end at random.

All of them are on one SQLite file or, with `--url`, on one server. It prints what was done to them, and the verdict on
what they have seen. `--help` lists the parameters.
"""

import sys

from tests.worker.chaos import main

if __name__ == "__main__":
    sys.exit(main())

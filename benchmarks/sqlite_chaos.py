"""`python -m benchmarks.sqlite_chaos`: processes on one SQLite file, killed and stopped at random; nothing may be lost.

It prints what was done to them, and the verdict on what they have seen. `--help` lists the parameters.
"""

import sys

from tests.sqlite.chaos import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m bide` is the command `bide`."""

import sys

from bide.cli import main

if __name__ == "__main__":
    sys.exit(main())

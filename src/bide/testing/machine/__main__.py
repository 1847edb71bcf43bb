"""Checks the engine of a URL against the model."""

import argparse
import secrets
import sys
import time
import traceback
from collections.abc import Sequence

from bide.errors import BideError
from bide.testing.machine.check import check_engine, from_url
from bide.testing.machine.steps import DEAD_FOR, DEAD_MAX


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bide.testing.machine", description="Check an engine against the model.")
    parser.add_argument("url")
    parser.add_argument("--examples", type=_count, default=200, help="histories a seed and colour (default: 200)")
    parser.add_argument("--steps", type=_count, default=100, help="steps of the longest history (default: 100)")
    parser.add_argument("--seeds", type=_count, default=1, help="how many seeds to try (default: 1)")
    parser.add_argument("--first", type=int, help="the first seed (default: any)")
    parser.add_argument("--colour", choices=["async", "sync"], help="one colour only (default: those that the engine has)")
    asked = parser.parse_args(arguments)
    make = from_url(asked.url)
    try:
        colours = [asked.colour] if asked.colour else sorted(make(dead_for=DEAD_FOR, dead_max=DEAD_MAX).capabilities.colours)
    except BideError as error:
        parser.error(str(error))
    first = secrets.randbelow(10**9) if asked.first is None else asked.first
    for seed in range(first, first + asked.seeds):
        for colour in colours:
            begin = time.perf_counter()
            try:
                check_engine(make, colour=colour, examples=asked.examples, steps=asked.steps, seed=seed)
            except Exception as error:  # an engine may fail in any way
                traceback.print_exception(error, file=sys.stdout)
                print(f"seed {seed} {colour}: FAILED")
                return 1
            print(f"seed {seed} {colour}: {asked.examples} histories held, {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is none at all")
    return count


if __name__ == "__main__":
    sys.exit(main())

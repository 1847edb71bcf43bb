"""Plays long histories at a URL."""

import argparse
import sys
from collections.abc import Sequence

from bide.testing.long_history.check import check_long_history
from bide.testing.machine import from_url


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bide.testing.long_history", description="Check an engine against the model for long."
    )
    parser.add_argument("url")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to try (default: 1)")
    parser.add_argument("--steps", type=int, default=2_500, help="of each history (default: 2,500)")
    parser.add_argument("--shrink", action="store_true", help="look for a shorter history that fails as well")
    asked = parser.parse_args(arguments)
    for seed in range(asked.seed, asked.seed + asked.seeds):
        history = check_long_history(from_url(asked.url), seed=seed, steps=asked.steps, shrink=asked.shrink)
        print(f"seed {seed}: {asked.steps} steps held, {dict(history.asked)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

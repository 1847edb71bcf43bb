"""The demo from its beginning to its verdict: shown as it happens, and judged from what was recorded."""

import asyncio
import json
import logging
import tempfile
from pathlib import Path

from bide.cli.demo.plan import plan
from bide.cli.demo.screen import Board, Screen, fits, print_event
from bide.cli.demo.shop import Shop
from bide.cli.demo.verdict import Verdict, as_dict, judge, show


def run(seed: int, *, as_json: bool = False) -> int:
    """Returns the exit code."""
    logging.getLogger("bide.delivery").addHandler(logging.NullHandler())  # a mail that fails belongs to the story
    if as_json:
        verdict = _play(seed, Board())
        print(json.dumps(as_dict(verdict), indent=2))
    elif fits():
        board = Board()
        with Screen(board):
            verdict = _play(seed, board)
        show(verdict)
    else:
        verdict = _play(seed, Board(print_event))
        show(verdict, plain=True)
    return 0 if verdict.kept else 1


def _play(seed: int, board: Board) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="bide-demo-") as folder:
        asyncio.run(_open_shop(seed, board, Path(folder)))
        return judge(Path(folder), seed, board.elapsed)


async def _open_shop(seed: int, board: Board, folder: Path) -> None:
    await Shop(folder, plan(seed), board).day()

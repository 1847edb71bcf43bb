"""`bide demo`: an order shop for twelve seconds, told as it happens and judged in the end."""

import asyncio
import json
import logging
import tempfile

from bide import AsyncQueue
from bide.cli.demo.board import Board
from bide.cli.demo.lines import print_line
from bide.cli.demo.plan import plan
from bide.cli.demo.scenario import Shop
from bide.cli.demo.screen import Screen, fits
from bide.cli.demo.summary import as_dict, show
from bide.cli.demo.tally import Tally, judge


def run(seed: int, *, as_json: bool = False) -> int:
    """Play it; the exit code."""
    logging.getLogger("bide.delivery").addHandler(logging.NullHandler())  # the mail that fails is a part of it
    if as_json:
        tally = _play(seed, Board())
        print(json.dumps(as_dict(tally), indent=2))
    elif fits():
        board = Board()
        with Screen(board):
            tally = _play(seed, board)
        show(tally)
    else:
        tally = _play(seed, Board(print_line))
        show(tally, plain=True)
    return 0 if tally.kept else 1


def _play(seed: int, board: Board) -> Tally:
    asyncio.run(_open_shop(seed, board))
    return judge(board.record, seed, board.elapsed)


async def _open_shop(seed: int, board: Board) -> None:
    with tempfile.TemporaryDirectory(prefix="bide-demo-") as folder:
        url = f"sqlite:///{folder}/shop.db"
        async with AsyncQueue(url) as queue:
            await Shop(queue, url, plan(seed), board).day()

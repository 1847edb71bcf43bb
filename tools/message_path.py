"""Draws the path of a message through the folders of bide, in CONTRIBUTING.md, from the files that a message meets.

python -m tools.message_path           draw it again
python -m tools.message_path --check   the exit code is 1 if the drawing is out of date

It starts a Redis server, and follows some messages of a plain task from the send until the engine has answered the ack. A file
is drawn if nearly all of them meet it, so that a timer which goes off meanwhile draws nothing. Without redis-server nothing is
drawn or checked, but not where CI is set.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from statistics import median_low
from types import FrameType
from typing import Any

import bide
from bide import AsyncQueue, Worker

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path("CONTRIBUTING.md")
PART = re.compile(r"(<!-- drawn by python -m tools\.message_path -->\n).*?(<!-- end -->)", re.DOTALL)
PACKAGE = os.path.join(os.path.dirname(bide.__file__), "")
MESSAGES = 9
TRIES = 3  # on a machine that stands still now and then, before the drawing is said to be out of date
QUIET = 0.1  # seconds after which a worker has done all that it does about a message
DELAY = 0.3  # of each message: its send is over well before it is due

STAGES = {
    "send": "await task.after(…).send(…)",
    "claim": "a worker claims it and calls the handler",
    "ack": "the worker acknowledges it and waits for more",
}

Met = dict[str, list[str]]
"""Of one message: the files that it met in each stage, in the order in which it met them first."""


class Watch:
    """Which files of bide this thread is in, by stages."""

    def __init__(self) -> None:
        self.met: Met = {}
        self._files: dict[str, None] = {}

    def _saw(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self._files.setdefault(name.removeprefix(PACKAGE))

    def begin(self, stage: str) -> None:
        self._files = {}
        sys.setprofile(self._saw)
        self._stage = stage

    def end(self) -> None:
        sys.setprofile(None)
        self.met[self._stage] = list(self._files)


async def followed(url: str) -> list[Met]:
    """What each of some messages met; the first one, for which all is made that is made once, is left out."""
    found: list[Met] = []
    async with AsyncQueue(url, namespace="message-path") as queue:
        watch, called = Watch(), asyncio.Event()

        @queue.task("orders")
        async def handle(number: int) -> None:
            watch.end()
            called.set()
            watch.begin("ack")

        async with Worker(queue):
            for number in range(1 + MESSAGES):
                called.clear()
                watch.begin("send")
                await handle.after(DELAY).send(number)
                watch.end()
                await asyncio.sleep(QUIET)
                watch.begin("claim")
                await called.wait()
                await asyncio.sleep(QUIET)
                watch.end()
                found.append(watch.met)
                watch.met = {}
    return found[1:]


def usual(ways: Sequence[Sequence[str]]) -> list[str]:
    """The files that nearly all of the messages met, in their usual order."""
    places: dict[str, list[int]] = {}
    for way in ways:
        for place, file in enumerate(way):
            places.setdefault(file, []).append(place)
    nearly_all = [file for file, at in places.items() if 4 * len(at) > 3 * len(ways)]
    return sorted(nearly_all, key=lambda file: median_low(places[file]))


def folders(files: Iterable[str]) -> Mapping[str, list[str]]:
    """The files of each folder, in the order in which they are met."""
    found: dict[str, list[str]] = {}
    for file in files:
        path = PurePosixPath(Path(file).as_posix())
        folder = "src/bide" if path.parent == PurePosixPath(".") else str(path.parent)
        found.setdefault(folder, []).append(path.stem)
    return found


def drawing(ways: Sequence[Met]) -> str:
    """A flowchart: a box for each folder, with the files that are met there, and a frame for each stage."""
    return "\n".join(["```mermaid", "flowchart LR", *_frames(ways), f"  {' --> '.join(STAGES)}", "```", ""])


def _frames(ways: Sequence[Met]) -> Iterator[str]:
    for stage, says in STAGES.items():
        boxes = [
            f'{stage}{number}["{folder}<br>{", ".join(files)}"]'
            for number, (folder, files) in enumerate(folders(usual([met[stage] for met in ways])).items())
        ]
        yield f'  subgraph {stage} ["{says}"]'
        yield "    direction TB"
        yield f"    {boxes[0]}"
        yield from (f"    {one.partition('[')[0]} --> {other}" for one, other in pairwise(boxes))
        yield "  end"


def followed_on_redis() -> list[Met]:
    from tests.servers.redis import RedisServer  # noqa: PLC0415  (not needed for the help)

    with RedisServer() as server:
        return asyncio.run(followed(server.url))


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.message_path", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; the exit code is 1 if the drawing is out of date")
    check = parser.parse_args(arguments).check
    if shutil.which("redis-server") is None:
        print("message_path: there is no redis-server to follow a message on: run `make servers`", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0
    page = root / PAGE
    text = page.read_text(encoding="utf-8")
    if not PART.search(text):
        print(f"message_path: {PAGE} has no place for the drawing: {PART.pattern}", file=sys.stderr)
        return 1
    for _ in range(TRIES):
        drawn = drawing(followed_on_redis())
        fresh = PART.sub(lambda found: f"{found[1]}{drawn}{found[2]}", text)  # noqa: B023  (it is called here)
        if fresh == text:
            print(f"message_path: the drawing in {PAGE} is up to date")
            return 0
    if check:
        print(f"The path of a message in {PAGE} is out of date. Run python -m tools.message_path and commit.", file=sys.stderr)
        return 1
    page.write_text(fresh, encoding="utf-8")
    print(f"message_path: wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

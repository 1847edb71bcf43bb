"""`python -m examples.roads WAY [URL]`: a consumer that prints what it handles. Errors end it.

With --send it sends the lines of its input instead: `5 hello` is `hello`, with a delay of 5 seconds. Ways inside one process,
which have no URL, do both. With --stuck a consumer never finishes its first message, as one that is about to be killed.
"""

import argparse
import contextlib
import importlib
import os
import pkgutil
import signal
import sys
import threading

import examples.roads

ways = sorted(each.name for each in pkgutil.iter_modules(examples.roads.__path__) if each.name != "__main__")
parser = argparse.ArgumentParser(prog="python -m examples.roads", description=__doc__)
parser.add_argument("way", metavar="WAY", choices=ways, help="a file in examples/roads: " + ", ".join(ways))
parser.add_argument("url", nargs="?", default="", help="the server; not needed inside one process")
parser.add_argument("--send", action="store_true", help="send the lines of the input")
parser.add_argument("--stuck", action="store_true", help="never finish the first message")
arguments = parser.parse_args()
way = importlib.import_module(f"examples.roads.{arguments.way}")
place = way.connect(arguments.url)


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # in one piece, also from several threads and processes


def handle(body: str) -> None:
    tell(f"handle {body}")
    if arguments.stuck:
        signal.pause()


def send() -> None:
    for line in sys.stdin:
        delay, _, body = line.strip().partition(" ")
        way.send(place, body, float(delay))
        tell(f"sent {body}")


with contextlib.suppress(KeyboardInterrupt):
    if arguments.send:
        send()
    else:
        if not arguments.url:
            threading.Thread(target=send, daemon=True).start()
        way.work(place, handle)

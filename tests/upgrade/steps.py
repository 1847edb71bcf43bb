"""What a program does with a queue. Each step runs on either release, so it uses only what both have.

    python steps.py STEP '{"url": "redis://…"}'

It writes what the step returns, as JSON.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import msgspec

from bide import AsyncQueue, BideError, Info, Queue, SchemaMismatch, Worker, current

try:
    from bide.prove.workload import Changer, Producer, ReceivingActor, Slowcoach, Stage
except ImportError:  # in the release before they are elsewhere
    from bide.prove.actors import Changer, Producer, Slowcoach, Stage  # type: ignore[import-not-found, no-redef]
    from bide.prove.actors import Receiver as ReceivingActor  # type: ignore[no-redef]

FAR, LATER = "90d", "1h"
LONG = "long " * 1_000


def send(url: str) -> None:
    """Messages of all kinds, in all states."""
    with Queue(url) as queue:
        for n in range(3):
            queue.send("t", n)
            queue.send("t", {"n": n, "text": "ключ ✓"}, delay=LATER, headers={"from": "here"}, max_attempts=7)
            queue.send("t", LONG, delay=FAR, key=f"far {n}", priority="high")
            queue.send("t", n, delay=LATER, key=f"k{n}", expires_in=FAR)
            queue.send("t", n, delay=LATER, operation=f"operation {n}")
        queue.send_many("many", list(range(500)))
        queue.send("failed", 1, key="of a failed one", max_attempts=1)
        [failed] = queue.receive("failed")
        failed.retry(error="it was asked to fail")
        queue.send("tried", 1, key="of a tried one")
        [tried] = queue.receive("tried")
        tried.retry(LATER, error="once")
        queue.send("held", 1)
        [_] = queue.receive("held", lease=LATER)
        queue.pause("paused")
        queue.send("paused", 1)


def look(url: str) -> dict[str, Any]:
    """All that is stored, and what is counted."""
    with Queue(url) as queue:
        topics = queue.stats().topics
        stored = {topic: queue.messages(topic, limit=1_000) for topic in topics}
        return {
            "stored": {topic: [_known(info) for info in page] for topic, page in stored.items()},
            "counted": {
                topic: [each.scheduled, each.ready, each.leased, each.dead, each.paused, each.next_due]
                for topic, each in topics.items()
            },
        }


NEWER = {"worker", "leased_since", "attempts"}  # what only this release tells


def _known(info: Info) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(info).items() if name not in NEWER}


def use(url: str) -> dict[str, list[str]]:
    """Change and end what somebody else has sent."""
    told: dict[str, list[str]] = {}
    with Queue(url) as queue:
        told["cancelled"] = [queue.cancel(topic="t", key=f"far {n}").name for n in range(3)]
        told["moved"] = [queue.reschedule(topic="t", key=f"k{n}", delay=0).name for n in range(2)]
        told["by key"] = [queue.send("t", key="k2", if_exists=how).outcome for how in ("keep", "later", "replace")]
        again = [queue.send("t", n, delay=LATER, operation=f"operation {n}").id for n in range(3)]
        told["again"] = [info.key or "" for id in again if (info := queue.get(id)) and info.state == "scheduled"]
        told["requeued"] = [str(int(queue.requeue("failed")))]
        for topic in ("t", "many", "failed"):
            told[f"received {topic}"] = []
            while found := queue.receive(topic, limit=100):
                told[f"received {topic}"] += [str(each.body) for each in found]
                queue.ack_many(found)
        told["tried"] = [info.last_error or "" for info in queue.messages("tried")]
        told["paused"] = [str(each.body) for each in queue.receive("paused")]
        queue.resume("paused")
        told["paused"] += [str(each.body) for each in queue.receive("paused")]
    return told


def hold(url: str, lease: float) -> list[str]:
    """Receive, and end without a word about it."""
    return [each.id for each in Queue(url).receive("t", limit=5, wait=10, lease=lease)]


def send_keys(url: str, topic: str, keys: list[str]) -> None:
    with Queue(url) as queue:
        for key in keys:
            queue.send(topic, key=key, max_attempts=9)


def send_one(url: str, topic: str, **options: Any) -> str:
    with Queue(url) as queue:
        return queue.send(topic, **options).outcome


def try_again(url: str, topic: str, error: str) -> dict[str, list[Any]]:
    """Each that is due fails. By key: its attempt, and for how long it has been tried, if the release tells that."""
    with Queue(url) as queue:
        found = queue.receive(topic, limit=100, wait=10)
        for each in found:
            each.retry(0, error=error)
        return {each.key or "": [each.attempt, getattr(getattr(each, "_internals", each), "tried_ms", None)] for each in found}


def put_off(url: str, topic: str) -> None:
    with Queue(url) as queue:
        for each in queue.receive(topic, limit=100, wait=10):
            each.release("1ms")


def give_new_times(url: str, topic: str) -> list[str]:
    """In each way that there is, to those with these keys."""
    with Queue(url) as queue:
        for each in queue.receive(topic, limit=100):
            each.bury("no use") if each.key == "dead" else each.release()
        moved = queue.reschedule(topic=topic, key="moved", delay=0).name
        replaced = queue.send(topic, key="replaced", if_exists="replace", max_attempts=9).outcome
        return [moved, replaced, str(int(queue.requeue(topic)))]


def end(url: str, topic: str, keys: list[str]) -> None:
    with Queue(url) as queue:
        for each in queue.receive(topic, limit=100, wait=10):
            each.ack() if each.key in keys else each.release()


def try_all(url: str, path: str) -> None:
    """Open a queue; after a line of input, write down what each of its verbs raises: the error's name and text."""
    with Queue(url) as queue:
        ready()
        sys.stdin.readline()
        calls: dict[str, Callable[[], object]] = {
            "send": lambda: queue.send("t", 1),
            "send by key": lambda: queue.send("t", 1, key="k", if_exists="replace"),
            "send many": lambda: queue.send_many("t", [1] * 100),
            "receive": lambda: queue.receive("t", limit=100),
            "cancel": lambda: queue.cancel(topic="t", key="k"),
            "reschedule": lambda: queue.reschedule(topic="t", key="k", delay=1),
            "get": lambda: queue.get(topic="t", key="k"),
            "messages": lambda: queue.messages("t"),
            "stats": queue.stats,
            "requeue": lambda: queue.requeue("t"),
            "purge": lambda: queue.purge("t", state="ready"),
            "pause": lambda: queue.pause("t"),
        }
        told = {name: raised(call) for name, call in calls.items()}
        Path(path).write_text(json.dumps(told), encoding="utf-8")


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except (BideError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def use_as(url: str, **options: Any) -> str:
    """What it raises to use such a queue."""

    def call() -> None:
        with Queue(url, **options) as queue:
            queue.send("t", 1)

    return raised(call)


def crowd(url: str, folder: str, name: str, seed: int, share: int) -> None:
    """Producers, receivers and others that use the queue by chance, die and are replaced, and write down what they do.

    Those who receive are at work first; the others begin after a line of input.
    """
    with Queue(url) as queue:
        queue.receive("t")  # all that it needs is imported then
    stage = Stage(lambda: Queue(url), Path(folder), seed, share)
    others = [stage.start(ReceivingActor, f"{name}-receiver-{n}") for n in range(2)]
    others.append(stage.start(Slowcoach, f"{name}-slowcoach"))
    ready()
    sys.stdin.readline()
    sending = [stage.start(Producer, f"{name}-producer-{n}") for n in range(2)]
    changer = stage.start(Changer, f"{name}-changer")
    for thread in sending:
        thread.join()
    stage.all_sent.set()
    changer.join()
    sys.stdin.read()
    stage.stop.set()
    for thread in others:
        thread.join()
    for error in stage.errors:
        if not isinstance(error, SchemaMismatch):  # somebody who was killed was refused when it began again
            raise error


def work(url: str, path: str) -> None:
    """A worker, which writes down what its handlers do. The first attempt of every fourth message fails."""

    async def main(log: TextIO) -> None:
        queue = AsyncQueue(url)

        @queue.task("order")
        async def handle(n: int) -> None:
            first = n % 4 == 0 and current().attempt == 1
            print(f"{'failed' if first else 'done'} {n}", file=log, flush=True)
            if first:
                raise ValueError("the first attempt of it")

        worker = Worker(queue, concurrency=4)
        running = asyncio.create_task(worker.run())
        ready()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        signal.raise_signal(signal.SIGTERM)
        await running
        await queue.close()

    with Path(path).open("a", encoding="utf-8") as log:
        asyncio.run(main(log))


def order(url: str, first: int, count: int) -> None:
    """Work for the workers, over two seconds."""
    with Queue(url) as queue:

        @queue.task("order", backoff=lambda attempt: 0.1)
        def handle(n: int) -> None: ...

        for n in range(first, first + count):
            handle.after(n % 20 / 10).send(n=n)


def ready() -> None:
    print("ready", flush=True)


def main() -> None:
    step, arguments = sys.argv[1:]
    told = globals()[step](**json.loads(arguments))
    print(json.dumps(told))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

"""What the threads of a run share, and how they live and die."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bide.queue import Queue
from bide.testing.history.sync.recorded import Recorded
from bide.testing.history.writing import History
from bide.types import Sent


class Killed(Exception):
    """A thread dies where it stands."""


class Actor(Protocol):
    def __init__(self, stage: "Stage", queue: Recorded, name: str) -> None: ...

    def work(self) -> None:
        """Until all is done, or Killed."""


class Stage:
    def __init__(self, make_queue: Callable[[], Queue], folder: Path, seed: int, share: int) -> None:
        self.make_queue = make_queue
        self.folder = folder
        self.seed = seed
        self.share = share  # of the messages, for each producer
        self.paths: list[Path] = []
        self.sent: deque[Sent] = deque()  # for those who change things
        self.buried: deque[str] = deque()
        self.received: int = 0
        self.all_sent: threading.Event = threading.Event()
        self.stop: threading.Event = threading.Event()
        self.errors: list[BaseException] = []
        self._progress = threading.Condition()

    def start(self, actor: type[Actor], name: str) -> threading.Thread:
        thread = threading.Thread(target=self._live, args=(actor, name), name=name)
        thread.start()
        return thread

    def history(self, name: str) -> History:
        path = self.folder / f"{name}.jsonl"
        self.paths.append(path)
        return History(path, name)

    def count_received(self, many: int) -> None:
        with self._progress:
            self.received += many
            self._progress.notify_all()

    def wait_for_received(self, many: int, seconds: float) -> None:
        """Until so many more have been received, or the time is up."""
        with self._progress:
            until = self.received + many
            self._progress.wait_for(lambda: self.received >= until or self.stop.is_set(), seconds)

    def _live(self, actor: type[Actor], name: str) -> None:
        """One life after the other, until one ends by itself."""
        life = 1
        try:
            while self._was_killed(actor, f"{name}.{life}"):
                life += 1
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    def _was_killed(self, actor: type[Actor], name: str) -> bool:
        with self.make_queue() as queue, self.history(name) as history:
            try:
                actor(self, Recorded(queue, history), name).work()
            except Killed as killed:
                with history.fault(f"kill a {actor.__name__.lower()}") as fault:
                    fault.landed(str(killed))
                return True
        return False

"""No circle of imports and no private name of another room passes unseen."""

from pathlib import Path

import pytest

from tools import rooms

House = dict[str, str]

SOUND: House = {
    "clock.py": "class Clock:\n    def now(self): return self._now\n",
    "queue/__init__.py": "from bide.queue.aio.queue import AsyncQueue\n",
    "queue/aio/queue.py": "from bide.clock import Clock\n\nclass AsyncQueue:\n    def __init__(self): self._setup = Clock()\n",
    "queue/tasks/task.py": "class Task:\n    __slots__ = ('_args',)\n    def _call(self): return self._args\n",
    "worker/run.py": "from bide.queue import AsyncQueue\nfrom bide.queue.tasks import task\n\ndef run(queue): queue.close()\n",
}


def faults(folder: Path, *changes: House) -> list[str]:
    for house in (SOUND, *changes):
        for name, text in house.items():
            path = folder / "src" / "bide" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    found = rooms.modules(folder)
    return [*rooms.circle_faults(found, frozenset()), *rooms.private_faults(found, frozenset())]


def test_a_sound_house_has_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "from bide.worker.run import run",
        "import bide.worker.run",
        "from bide.worker import run",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bide.worker.run import run",
        "def later():\n    from bide.worker.run import run",
    ],
    ids=["from", "import", "module", "for types", "in a function"],
)
def test_a_circle_of_imports_is_found(tmp_path: Path, text: str) -> None:
    [told] = faults(tmp_path, {"queue/tasks/task.py": text})
    assert told == "These modules import each other in a circle: bide.queue.tasks.task, bide.worker.run"


def test_a_circle_of_three_and_a_module_that_imports_itself_are_found(tmp_path: Path) -> None:
    house = {
        "queue/aio/queue.py": "from bide.queue.tasks import task",
        "queue/tasks/task.py": "import bide.queue",
        "clock.py": "import bide.clock",
    }
    assert [told.partition(": ")[2] for told in faults(tmp_path, house)] == [
        "bide.clock",
        "bide.queue, bide.queue.aio.queue, bide.queue.tasks.task",
    ]


@pytest.mark.parametrize(
    ("name", "text", "owner"),
    [
        ("worker/run.py", "def run(queue): return queue._setup", "queue"),
        ("worker/run.py", "def run(queue): queue._setup = None", "queue"),
        ("worker/run.py", "def run(task): return task._call()", "queue/tasks"),
        ("worker/run.py", "def run(task): return task._args", "queue/tasks"),
        ("queue/tasks/task.py", "def call(queue): return queue._setup", "queue"),
        ("worker/run.py", "from bide.queue.tasks.task import _call", "queue/tasks"),
    ],
    ids=["read", "written", "called", "a slot", "of the room around it", "imported"],
)
def test_a_private_name_of_another_room_is_found(tmp_path: Path, name: str, text: str, owner: str) -> None:
    own = {"queue/tasks/names.py": "def _call(): ...\n_args = ()\n"}
    [told] = faults(tmp_path, own, {name: text})
    assert told.startswith(f"src/bide/{name}:1 uses _")
    assert f"private to {owner}:" in told


@pytest.mark.parametrize(
    "house",
    [
        {"queue/aio/queue.py": "def call(task): return task._call()"},
        {"queue/sync/queue.py": "def setup(queue): return queue._setup"},
        {"worker/run.py": "def run(thread): return thread._is_owned(), thread.__dict__, thread._replace()"},
        {"worker/run.py": "class Worker:\n    _setup = 1\ndef run(worker): return worker._setup"},
    ],
    ids=["of a room within", "of the other colour", "of no room", "of its own, too"],
)
def test_other_private_names_are_let_pass(tmp_path: Path, house: House) -> None:
    assert faults(tmp_path, house) == []


def test_what_is_known_is_let_pass_and_named_when_it_is_gone(tmp_path: Path) -> None:
    faults(tmp_path, {"queue/tasks/task.py": "from bide.worker import run\ndef call(queue): return queue._setup"})
    found = rooms.modules(tmp_path)
    use, way = ("queue/tasks", "_setup"), ("bide.queue.tasks.task", "bide.worker.run")
    assert list(rooms.private_faults(found, frozenset({use}))) == []
    assert list(rooms.circle_faults(found, frozenset({way}))) == []
    faults(tmp_path)
    found = rooms.modules(tmp_path)
    [told] = rooms.private_faults(found, frozenset({use}))
    assert "take it out of KNOWN_USES" in told
    [told] = rooms.circle_faults(found, frozenset({way}))
    assert "take it out of KNOWN_IMPORTS" in told

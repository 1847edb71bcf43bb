"""A message has one road to its handler, in a worker as in time travel: each step on it is one module that does it.

Modules that do the same elsewhere are listed with the reason. A list may only shrink: an entry that is not needed is a fault.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

BIDE = Path(__file__).resolve().parents[2] / "src" / "bide"
CALL = "queue/run/call.py"

HANDLERS = {CALL: "", "queue/bound.py": "the user calls the function of a task"}
ON_DEAD = {CALL: "", "queue/tasks/failures.py": "says in which thread it runs"}
FULFILS = {"queue/run/aio/keep.py": "", "queue/aio/outbox.py": "no results: under which ids messages were handed on"}
SETTLES = {
    "worker/finish.py": "many ends together, again and again until the engine has taken them",
    "queue/aio/traveller.py": "time travel, which ends one message after the other and needs no retries",
    "queue/aio/delivery.py": "what a user ends in a transaction",
    "queue/aio/session.py": "what a user ends together",
    "queue/aio/opened.py": "what users end, gathered",
    "queue/aio/claims.py": "gives back what nobody has got",
    "queue/aio/relay.py": "an outbox, not a queue",
    "queue/aio/outbox_messages.py": "an outbox, not a queue",
    "worker/service.py": "the last that a worker says whose event loop is blocked, in another thread",
    "worker/claims.py": "buries what has killed its process, and whose task is not known here",
    "worker/recovery.py": "gives back or buries what a process has claimed that is gone",
}
CLAIMS = {
    "queue/aio/receive.py": "",
    "queue/aio/claims.py": "asks what a claim has brought whose answer was lost",
    "queue/heartbeat.py": "asks what a claim has brought whose answer is late",
    "worker/claims.py": "asks what a claim has brought whose answer was lost",
    "worker/recovery.py": "asks what the claims of a process have brought that is gone",
    "queue/aio/relay.py": "an outbox, not a queue",
    "queue/aio/outbox_changes.py": "asks an outbox for the time",
    "queue/aio/planner.py": "asks for the time",
    "queue/aio/travel.py": "asks for the time",
}


def _names(node: ast.AST) -> str:
    """`self._engine.settle` as it is written, without what is awaited or called on the way."""
    if isinstance(node, ast.Attribute):
        return f"{_names(node.value)}.{node.attr}"
    if isinstance(node, ast.Name):
        return node.id
    return _names(node.value) if isinstance(node, ast.Await) else _names(node.func) if isinstance(node, ast.Call) else ""


def uses(text: str) -> Iterator[str]:
    """What a module calls, or hands on to be called, as `engine.settle`: the verb, and whose it is."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            yield f"{_names(node.value).rpartition('.')[2].lstrip('_')}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield f".{node.func.id}"


def modules() -> Iterator[tuple[str, str]]:
    """Those of the queue and of the worker that people write."""
    for room in ("queue", "worker"):
        for path in sorted((BIDE / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not text.startswith("# Generated from "):
                yield path.relative_to(BIDE).as_posix(), text


def handlers(call: str) -> bool:
    return call in ("task.run", "task.call", "task.function", "definition.run", "definition.call", "definition.function")


def on_dead(call: str) -> bool:
    return call in ("failing.tell", ".on_dead")


def of_engine(verb: str) -> Callable[[str], bool]:
    return lambda call: call in (f"engine.{verb}", f"store.{verb}")


@pytest.mark.parametrize(
    ("does", "known"),
    [
        (handlers, HANDLERS),
        (on_dead, ON_DEAD),
        (lambda call: call == "results.fulfil", FULFILS),
        (of_engine("settle"), SETTLES),
        (of_engine("claim"), CLAIMS),
    ],
    ids=["handlers", "on_dead", "results", "settle", "claim"],
)
def test_each_step_is_taken_in_one_module(does: Callable[[str], bool], known: Mapping[str, str]) -> None:
    found = {name for name, text in modules() if any(map(does, uses(text)))}

    assert found == set(known)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("await handling.task.run(**arguments)", "task.run"),
        ("self._task.call(arguments)", "task.call"),
        ("on_dead(delivery, reason)", ".on_dead"),
        ("await self._engine.settle(ends)", "engine.settle"),
        ("(await self.engine()).settle(ends)", "engine.settle"),
        ("self._sync.engine().settle(ends)", "engine.settle"),
        ("AsyncBatching(self._engine.results.fulfil, part)", "results.fulfil"),
    ],
)
def test_a_call_is_seen_however_it_is_written(line: str, call: str) -> None:
    assert call in uses(f"async def f(): {line}")

"""The public face: what is exported, what an import loads, what an error tree promises."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bide
from bide import errors
from bide.engines import registry

DRIVERS = {"redis", "psycopg", "aiormq", "sqlite3", "typer", "rich", "hypothesis", "pytest", "uvloop", "starlette"}


def in_a_fresh_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_all_that_is_exported_exists_and_is_documented() -> None:
    for name in bide.__all__:
        exported = getattr(bide, name)
        if inspect.isclass(exported) or inspect.isfunction(exported):
            assert exported.__doc__, name


def test_every_public_method_is_documented() -> None:
    for colour in (bide.AsyncQueue, bide.Queue, bide.AsyncDelivery, bide.Delivery):
        for name, method in inspect.getmembers(colour, callable):
            if not name.startswith("_"):
                assert method.__doc__, f"{colour.__name__}.{name}"


def test_the_colours_have_the_same_methods() -> None:
    def methods(colour: type) -> dict[str, list[str]]:
        members = inspect.getmembers(colour, inspect.isfunction)
        return {name: list(inspect.signature(each).parameters) for name, each in members if not name.startswith("_")}

    assert methods(bide.AsyncQueue) == methods(bide.Queue)
    assert methods(bide.AsyncDelivery) == methods(bide.Delivery)


def test_import_loads_no_driver() -> None:
    loaded = in_a_fresh_python("import bide, sys; bide.Queue, bide.AsyncQueue; print(*sys.modules)").split()
    assert "msgspec" in loaded
    assert DRIVERS.isdisjoint(loaded)


def test_import_alone_loads_no_event_loop() -> None:
    assert "asyncio" not in in_a_fresh_python("import bide, sys; print(*sys.modules)").split()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        getattr(bide, "nothing_of_this_name")  # noqa: B009


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn: list[tuple[str, str]] = []
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        before, mark, rest = line.partition("── ")
        if mark:
            depth = (len(before) + 1) // 4 + 1
            path[depth:] = [rest.split()[0]]
            drawn.append((path[depth - 1], path[depth]))
        elif line == "BideError":
            path = [line]
    real = {
        (base.__name__, name)
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, bide.BideError)
        for base in each.__bases__
        if issubclass(base, bide.BideError)
    }
    assert set(drawn) == real
    assert {name for _, name in drawn} | {"BideError"} <= set(bide.__all__)


def test_no_source_file_unpickles_or_evaluates() -> None:
    forbidden = re.compile(r"import pickle\b| eval\(| exec\(|yaml\.load|marshal")  # pickletools reads and runs nothing
    for path in Path(bide.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert forbidden.findall(text) == [], path


def test_a_missing_driver_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._ENGINES, "pigeon", ("bide.engines.no_such_driver", "pigeon"))
    with pytest.raises(bide.MissingExtra, match=r'pip install "bide\[pigeon\]"'):
        bide.Queue("pigeon://coop")


def test_without_a_url_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_URL", "memory://from-the-environment")
    assert repr(bide.Queue()) == "<Queue memory://from-the-environment>"


def test_what_is_not_loaded_yet_is_listed_too() -> None:
    listed = in_a_fresh_python("import bide; print(*dir(bide))")
    assert {"AsyncQueue", "Queue", "Worker", "__version__"} <= set(listed.split())

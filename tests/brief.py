"""`pytest --brief`: what `make test` runs. `make test-all` runs all.

The tests of one name, one engine and one folder are one test with other parameters, or in the other colour; so are those of the
contract for an engine that is reached or set up in other ways, which are marked as `variant`. It runs as many of them as take a
core for ENOUGH together, and one at least: always the same. It leaves out what takes longer than LONG, unless it is marked as
`always`. What a test takes is in tests/durations.json (see tests/times.py). The judges of judges, in tests/negative, run all.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping

import pytest

from tests.times import kin_of, recorded

ENOUGH = 0.05  # seconds of a core
LONG = 0.3
WHOLE = "tests/negative/"


def chosen(tests: Mapping[str, str], durations: Mapping[str, float], always: Collection[str] = ()) -> set[str]:
    """Those that run, of tests with their kin. Which ones does not change when others are added, but for those that these take
    the place of. `always`: the kin of which one runs however long it takes.
    """
    run: set[str] = set()
    kins: dict[str, list[str]] = defaultdict(list)
    for test, kin in tests.items():
        kins[kin].append(test)
    for kin, each in kins.items():
        took = durations.get(kin, 0.0)
        if took <= LONG or kin in always:
            run |= first(each, took)
    return run


def first(tests: Iterable[str], took: float) -> set[str]:
    """As many of tests of one kind, of which each takes so long, as are enough."""
    in_order = sorted(tests, key=lambda test: hashlib.sha256(test.encode()).digest())
    return set(in_order[: max(1, int(ENOUGH / took))] if took else in_order)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--brief", action="store_true", help="one test of each kind, and none that is long")


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """Make none of which enough come first among those of the same function: each process would make all of them."""
    yield
    test = metafunc.definition
    if not metafunc.config.getoption("brief") or test.nodeid.startswith(WHOLE):
        return
    left_out = {id(each) for each in metafunc._calls if any(mark.name == "slow" for mark in each.marks)}
    names = {f"{test.nodeid}[{each.id}]": each for each in metafunc._calls if id(each) not in left_out}
    run = first(names, recorded().kin.get(kin_of(test), 0.0))
    metafunc._calls = [each for name, each in names.items() if name in run] or metafunc._calls[:1]


@pytest.hookimpl(trylast=True)  # after what is slow has been left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("brief"):
        return
    kin = {each.nodeid: kin_of(each) for each in items}
    run = chosen(kin, recorded().kin, {kin[each.nodeid] for each in items if each.get_closest_marker("always")})
    run |= {each.nodeid for each in items if each.nodeid.startswith(WHOLE)}
    config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in run])
    items[:] = [each for each in items if each.nodeid in run]

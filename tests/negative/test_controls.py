"""Each planted bug is found by whoever can see it: the contract suite, the model, the history checker.

With no bug all three are content. A checker that no bug can disturb would prove nothing.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from bide import ManualClock, Queue
from bide.engines.base import Settings
from bide.engines.memory import source
from bide.engines.registry import Source
from bide.prove import History, Recorded, Report, check
from bide.prove.workload import run
from tests.model.expected import Divergence
from tests.model.hypothesis_rules import machine_for
from tests.model.long_history import LongHistory, check_long_history
from tests.model.runner import Runner
from tests.negative.faulty import FAULTS, DropsOne, Fault, FaultySource, LiesAboutCancel

ROOT = Path(__file__).parents[2]

CONTRACT = {
    "IgnoresToken": "test_an_old_token_is_lost_and_changes_nothing",
    "DeliversEarly": "test_a_message_is_never_handed_out_early",
    "ForgetsTheClock": "test_an_instant_is_never_handed_out_before_the_clock_has_reached_it",
    "DeliversTwice": "test_a_due_message_is_handed_out_to_one_holder_at_a_time",
    "LiesAboutCancel": "test_a_cancelled_message_is_never_handed_out",
    "SendsTwice": "test_the_same_operation_acts_once_and_gets_the_same_answer",
    "PopsFirst": "test_a_message_whose_lease_has_ended_comes_back",
}
"""The test that fails. One lost message in a thousand is too rare for tests of a few messages each."""

MODEL: dict[str, Callable[[], Fault]] = FAULTS | {"DropsOne": lambda: DropsOne(every=10)}
"""The model's histories are short as well: it sees what loses one message in ten."""

HISTORY = {
    "DropsOne": "no loss",
    "IgnoresToken": "fencing",
    "DeliversEarly": "never early",
    "ForgetsTheClock": "never early",
    "DeliversTwice": "duplicates explained",
    "LiesAboutCancel": "final",
    "SendsTwice": "idempotent",
    "PopsFirst": "no loss",
}
"""The invariant that is broken, whatever else is."""


# the contract suite


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What fails of the contract, by fault; with the colours as pytest shows them."""
    path = tmp_path_factory.mktemp("contract") / "results.xml"
    command = [sys.executable, "-m", "pytest", "tests/negative/contract_under_fault.py", "-q", "--tb=no", f"--junitxml={path}"]
    asked = " or ".join(["(NoFault and not wait and not sleep)", *CONTRACT.values()])  # no fault has to do with waking up
    command += ["-p", "no:cacheprovider", "-k", asked]
    python_path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": python_path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    found: dict[str, set[str]] = {name: set() for name in ("NoFault", *FAULTS)}
    for case in ElementTree.parse(path).iter("testcase"):
        failed = found[case.attrib["classname"].rpartition(".Test")[2]]
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(case.attrib["name"])
    return found


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize(("fault", "test"), CONTRACT.items())
def test_the_contract_finds(fault: str, test: str, colour: str, failures: dict[str, set[str]]) -> None:
    assert f"{test}[{colour}]" in failures[fault]


def test_the_contract_is_content_without_a_fault(failures: dict[str, set[str]]) -> None:
    assert not failures["NoFault"]


# the model


def run_model(make_fault: Callable[[], Fault], colour: str) -> None:
    """As check_engine does, but it does not look for the shortest history: that there is one is enough."""

    def make(**how: Any) -> Source:
        return FaultySource(source(Settings(url="memory://", clock=ManualClock(), **how)), make_fault())

    how = settings(
        max_examples=50,
        stateful_step_count=40,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(1)(machine_for(make, colour)), settings=how)


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_finds(fault: str, colour: str) -> None:
    with pytest.raises(Divergence):
        run_model(MODEL[fault], colour)


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_the_model_is_content_without_a_fault(colour: str) -> None:
    run_model(Fault, colour)


# the model, for long

LONG: dict[str, Callable[[], Fault]] = FAULTS | {"DropsOne": lambda: DropsOne(every=500)}
"""What loses one message in five hundred is seen by a history of thousands."""


def run_long(make_fault: Callable[[], Fault], steps: int = 1_000, seed: int = 1, **how: Any) -> LongHistory:
    def make(**settings: Any) -> Source:
        return FaultySource(source(Settings(url="memory://", clock=ManualClock(), **settings)), make_fault())

    return check_long_history(make, seed=seed, steps=steps, **how)


def run_some_long(make_fault: Callable[[], Fault]) -> None:
    for number in (1, 2, 3, 4):
        run_long(make_fault, seed=number)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_long_history_finds(fault: str) -> None:
    with pytest.raises(Divergence):
        run_some_long(LONG[fault])


def test_a_long_history_is_content_without_a_fault() -> None:
    assert run_long(Fault).asked["put"] > 100


def test_a_long_history_finds_what_is_left_behind() -> None:
    def left(runner: Runner) -> None:
        assert not runner.expected.messages  # those that have ended are still known to the model

    with pytest.raises(AssertionError):
        run_long(Fault, left=left)


def test_a_long_history_that_fails_is_made_shorter_and_can_be_played_again() -> None:
    with pytest.raises(Divergence) as long:
        run_long(LiesAboutCancel)
    with pytest.raises(Divergence) as short:
        run_long(LiesAboutCancel, shrink=True)
    counts = [int(re.findall(r"(\d+) messages so far", "".join(each.value.__notes__))[0]) for each in (long, short)]
    assert counts[1] < counts[0] / 2


# the history checker


def run_history(make_fault: Callable[[], Fault], folder: Path) -> Report:
    url, fault = f"memory://{uuid4().hex}", make_fault()

    def make_queue() -> Queue:
        queue = Queue(url)
        queue.session.setup.source = FaultySource(queue.session.setup.source, fault)
        return queue

    return check(run(make_queue, folder, seed=1, timeout=3), steady=True)


def run_stepped(make_fault: Callable[[], Fault], folder: Path) -> Report:
    """The server's clock is an hour ahead for a while. Instants are sent before and after that."""
    path, clock = folder / "stepped.jsonl", ManualClock()
    plain = Queue("memory://", clock=clock)
    plain.session.setup.source = FaultySource(plain.session.setup.source, make_fault())
    with plain, History(path) as history:
        queue, at = Recorded(plain, history), clock.now() + timedelta(minutes=10)

        def step(seconds: float) -> None:
            with history.setting_clock() as setting:
                clock.advance(seconds)
                setting.ok(clock.now_ms)

        step(0)
        queue.send("mail", at=at)
        step(3_600)
        queue.send("mail")  # which tells the engine the time
        step(-3_600)
        queue.send("mail", at=at)
        for seconds in (0, 7_200):
            step(seconds)
            for each in queue.receive("mail", limit=10):
                each.ack()
        queue.look()
    return check([path])


@pytest.mark.parametrize(("fault", "invariant"), HISTORY.items())
def test_the_history_checker_finds(fault: str, invariant: str, tmp_path: Path) -> None:
    run_it = run_stepped if fault == "ForgetsTheClock" else run_history
    report = run_it(FAULTS[fault], tmp_path)
    assert invariant in report.violations
    assert report.valid is False


@pytest.mark.parametrize("run_it", [run_history, run_stepped])
def test_the_history_checker_is_content_without_a_fault(run_it: Callable[..., Report], tmp_path: Path) -> None:
    report = run_it(Fault, tmp_path)
    assert report.valid is True, str(report)


def test_no_fault_is_left_out() -> None:
    assert set(HISTORY) == set(LONG) == set(MODEL) == set(FAULTS) == {*CONTRACT, "DropsOne"}

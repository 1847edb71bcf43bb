"""Each bug that is planted in the RabbitMQ engine is found by the contract suite, which is content without one."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.negative.rabbitmq_under_fault import FAULTS
from tests.servers.programs import needs_rabbitmq

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
FILE = "tests/negative/rabbitmq_under_fault.py"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """By fault and test, with the colour as pytest shows it: passed, failure or error."""
    needs_rabbitmq()
    path = tmp_path_factory.mktemp("contract") / "results.xml"
    asked = [f"{FILE}::Test{fault}::{each.test}" for name, each in FAULTS.items() for fault in (name, "NoFault")]
    command = [sys.executable, "-m", "pytest", *asked, "-q", "--tb=no", f"--junitxml={path}", "-p", "no:cacheprovider"]
    python_path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": python_path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    found: dict[tuple[str, str], str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        fault = case.attrib["classname"].rpartition(".Test")[2]
        found[fault, case.attrib["name"]] = next((each.tag for each in case if each.tag in ("failure", "error")), "passed")
    return found


@pytest.mark.parametrize("colour", ["async", "sync"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_finds(fault: str, colour: str, outcomes: dict[tuple[str, str], str]) -> None:
    assert outcomes[fault, f"{FAULTS[fault].test}[{colour}]"] == "failure"


def test_the_contract_is_content_without_a_fault(outcomes: dict[tuple[str, str], str]) -> None:
    plain = {test: outcome for (fault, test), outcome in outcomes.items() if fault == "NoFault"}
    assert len(plain) == 2 * len(FAULTS)
    assert set(plain.values()) == {"passed"}

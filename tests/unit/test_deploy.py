"""What deploy/ has for others to use: files that can be read, with commands and options that bide has."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from bide.cli import main

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = sorted(DEPLOY.rglob("*.yml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
GRACE = 20  # seconds, in all of the commands


def strings(found: Any) -> Iterator[list[str]]:
    """The lists of strings in a manifest."""
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        yield found
    elif isinstance(found, list | dict):
        for each in found.values() if isinstance(found, dict) else found:
            yield from strings(each)


def commands() -> Iterator[list[str]]:
    for path in MANIFESTS:
        yield from (each for each in strings(yaml.safe_load(path.read_text())) if each[:1] == ["bide"])
    for path in UNITS:
        _, _, command = unit(path)["Service"]["ExecStart"].partition("bin/")
        yield shlex.split(command)
    [[command]] = [re.findall(r'^CMD (\["bide".*\])$', (DEPLOY / "docker/Dockerfile").read_text(), re.MULTILINE)]
    yield json.loads(command)


def unit(path: Path) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None, inline_comment_prefixes=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(path)
    return parsed


def test_the_options_of_all_commands_are_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = list(commands())
    assert len(found) >= 6
    for _, name, *arguments in found:
        assert main([name, "--help"]) == 0
        told = capsys.readouterr().out
        for each in arguments:
            assert not each.startswith("--") or re.search(rf"(?<!\S){each}\b", told), f"bide {name} has no {each}"


def test_the_time_to_stop_is_longer_than_the_grace() -> None:
    graces = {each[each.index("--grace") + 1] for each in commands() if each[1] == "worker"}
    assert graces == {f"{GRACE}s"}
    pod = yaml.safe_load((DEPLOY / "kubernetes/worker.yml").read_text())["spec"]["template"]["spec"]
    service = yaml.safe_load((DEPLOY / "docker/compose.yml").read_text())["services"]["worker"]
    longest = unit(DEPLOY / "systemd/bide-worker.service")["Service"]["TimeoutStopSec"]
    assert min(pod["terminationGracePeriodSeconds"], int(service["stop_grace_period"].rstrip("s")), int(longest)) > GRACE + 1.3


def test_files_that_are_mounted_are_there() -> None:
    folder = DEPLOY / "docker"
    services = yaml.safe_load((folder / "compose.yml").read_text())["services"]
    mounted = [each.partition(":")[0] for service in services.values() for each in service.get("volumes", ())]
    assert [each for each in mounted if each.startswith(".") and not (folder / each).exists()] == []
    assert "COPY shop.py ." in (folder / "Dockerfile").read_text()
    assert (folder / "shop.py").exists()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_its_units(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    text = (
        path.read_text().replace("/srv/shop/.venv/bin/bide", shutil.which("true") or "true").replace("User=shop", "User=root")
    )
    (tmp_path / path.name).write_text(text)
    ended = subprocess.run(["systemd-analyze", "verify", tmp_path / path.name], capture_output=True, text=True, check=False)
    assert path.name not in ended.stderr, ended.stderr


@pytest.mark.parametrize("path", sorted((DEPLOY / "grafana").glob("*.json")), ids=lambda path: path.stem)
def test_no_panel_lies_on_another(path: Path) -> None:
    panels = json.loads(path.read_text())["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [each["gridPos"] for each in panels]
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(each["x"] + each["w"] <= 24 for each in places)

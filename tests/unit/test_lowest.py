"""The lowest versions are those that pyproject.toml names."""

from typing import Any

import pytest

from tools.lowest import lowest, main


def project(*requirements: str, **extras: list[str]) -> dict[str, Any]:
    return {"name": "mine", "dependencies": list(requirements), "optional-dependencies": {"dev": [], **extras}}


def test_each_lower_bound_becomes_the_version() -> None:
    asked = project("a>=1", "b-c[d,e]>=2.0.3", "f>=0.2; sys_platform != 'win32'")
    assert list(lowest(asked)) == ["a==1", "b-c[d,e]==2.0.3", "f==0.2; sys_platform != 'win32'"]


def test_an_extra_of_the_package_stands_for_what_is_in_it() -> None:
    asked = project(dev=["mine[web,fast]", "ruff>=1,<2"], web=["w>=1", "mine[fast]"], fast=["f>=3"], other=["o>=4"])
    assert set(lowest(asked)) == {"w==1", "f==3"}


@pytest.mark.parametrize("requirement", ["a", "a==1", "a>=1,<2", "a>1"])
def test_what_has_no_lower_bound_alone_is_refused(requirement: str) -> None:
    with pytest.raises(SystemExit, match="names no lowest version"):
        list(lowest(project(requirement)))


def test_the_bounds_of_this_project_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert "msgspec==" in capsys.readouterr().out

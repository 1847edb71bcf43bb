"""The page shows each program, in the order of its table."""

import re

from tests.mistakes.conftest import ROOT


def test_each_of_the_programs_is_on_the_page_and_tested() -> None:
    programs = {path.stem for path in (ROOT / "examples" / "mistakes").glob("*.py")} - {"__init__"}
    page = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8")
    assert len(programs) == 11
    assert set(re.findall(r"<!-- generated: mistake (\w+) -->", page)) == programs
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "mistakes").glob("test_*.py"))
    assert set(re.findall(r"(?:by_hand|ran)\(\"(\w+)\"", tests)) == programs
    table = [re.sub(r"\W+", "", each.lower()) for each in re.findall(r"^\| \[(.+?)\]", page, re.MULTILINE)]
    assert table == [re.sub(r"\W+", "", each.lower()) for each in re.findall(r"^## \d+\. (.+)$", page, re.MULTILINE)]

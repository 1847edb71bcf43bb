"""The drawing of a message's path is the same each time, whatever else a worker does meanwhile."""

from pathlib import Path

import pytest

from tools import message_path

SEND, CLAIM, ACK = ["queue/task.py", "clock.py", "queue/send.py", "engines/redis.py"], ["worker/claim.py"], ["worker/finish.py"]
PAGE = "before\n<!-- drawn by python -m tools.message_path -->\nold\n<!-- end -->\nafter\n"


def met(**other: list[str]) -> message_path.Met:
    return {"send": SEND, "claim": CLAIM, "ack": ACK} | other


def test_folders_are_in_the_order_in_which_they_are_met_first() -> None:
    drawn = message_path.drawing([met()] * 9)
    boxes = [line.strip() for line in drawn.splitlines() if "<br>" in line]
    assert boxes == [
        'send0["queue<br>task, send"]',
        'send0 --> send1["src/bide<br>clock"]',
        'send1 --> send2["engines<br>redis"]',
        'claim0["worker<br>claim"]',
        'ack0["worker<br>finish"]',
    ]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_only_some_messages_meet_changes_nothing(times: int) -> None:
    ways = [met()] * (9 - times) + [met(send=["worker/timer.py", *SEND], claim=["worker/timer.py", *CLAIM])] * times
    assert message_path.drawing(ways) == message_path.drawing([met()] * 9)


def test_a_drawing_out_of_date_is_told_and_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(message_path, "followed_on_redis", lambda: [met()] * 9)
    monkeypatch.setattr("shutil.which", lambda _: "redis-server")
    page = tmp_path / message_path.PAGE
    page.write_text(PAGE, encoding="utf-8")
    assert message_path.main(["--check"], tmp_path) == 1
    assert "Run python -m tools.message_path" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == PAGE
    assert message_path.main([], tmp_path) == 0
    assert message_path.main(["--check"], tmp_path) == 0
    text = page.read_text(encoding="utf-8")
    assert text == PAGE.replace("old\n", message_path.drawing([met()] * 9))


def test_without_redis_nothing_is_checked_but_not_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CI", raising=False)
    assert message_path.main(["--check"], tmp_path) == 0
    monkeypatch.setenv("CI", "1")
    assert message_path.main(["--check"], tmp_path) == 1
    assert "make servers" in capsys.readouterr().err

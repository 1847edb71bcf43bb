"""Somebody has changed the file, so that a message's headers can't be read: that message alone is a dead letter."""

import sqlite3
from pathlib import Path

import pytest

from bide import Queue


@pytest.mark.parametrize("broken", ["spoil", "[]", '{"a": 1}', "[" * 100_000])
def test_the_others_are_received(tmp_path: Path, broken: str) -> None:
    with Queue(f"sqlite:///{tmp_path / 'bide.db'}") as queue:
        for n in range(3):
            queue.send("t", {"n": n}, headers={"h": "v"})
        with sqlite3.connect(tmp_path / "bide.db") as file:
            changed = file.execute("UPDATE message SET headers = ? WHERE body = ?", (broken, b'{"n":1}'))
            assert changed.rowcount == 1
        assert [each.headers for each in queue.messages("t")] == [{"h": "v"}, {}, {"h": "v"}]
        received = queue.receive("t", limit=10)
        assert [each.body["n"] for each in received] == [0, 2]
        queue.ack_many(received)
        [dead] = queue.messages("t", state="dead")
        assert (dead.last_error or "").startswith("Its headers are not a JSON object of texts.")
        assert queue.stats("t").leased == 0

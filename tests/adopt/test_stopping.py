"""`bide adopt` at a terminal: its progress, and what Ctrl-C and SIGTERM do."""

import json
from typing import Any

import pytest
import redis

from bide.cli.adopt.run import carry_out
from bide.engines.redis.sync.shard import SAFE
from bide.errors import OutcomeUnknown
from tests.adopt.reading import everything
from tests.cli.running import AtTerminal

COUNT = 3_000


@pytest.mark.parametrize("signal", ["interrupt", "terminate"])
def test_a_run_that_follows_is_stopped_after_a_whole_batch(
    at_terminal: AtTerminal, old: redis.Redis, redis_url: str, signal: str
) -> None:
    old.zadd("delayed", {json.dumps({"order": number}): 4_000_000_000 for number in range(COUNT)})
    screen = at_terminal("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, "--follow")
    screen.until("3,000")
    getattr(screen, signal)()
    ended = screen.end()
    assert ended.code == 0
    assert "Stopped after a whole batch. The same command goes on.\n" in ended.err
    assert "3,000 messages of delayed at " in ended.err
    assert len(everything("t")) == COUNT
    assert old.keys() == []


def test_a_run_shows_how_far_it_is(at_terminal: AtTerminal, old: redis.Redis, redis_url: str) -> None:
    old.zadd("delayed", {json.dumps({"order": number}): 4_000_000_000 for number in range(COUNT)})
    ended = at_terminal("adopt", "redis-zset", "delayed", "--topic", "t", "--source", redis_url, out_is_file=True).end()
    assert ended.out.startswith(f"Adopted 3,000 messages of delayed at {redis_url} to 1 topic of sqlite:///")
    assert "adopting" in ended.err
    assert "of 3,000" in ended.err


class _EndedAmid:
    """What a second Ctrl-C ends."""

    def run(self, *_: object) -> None:
        raise KeyboardInterrupt


def test_a_second_ctrl_c_tells_that_some_are_on_their_way(capsys: pytest.CaptureFixture[str]) -> None:
    ended: Any = _EndedAmid()
    with pytest.raises(KeyboardInterrupt):
        carry_out(ended, ended, "moving", follow=True, as_json=False)
    assert "What was on its way stays so: run the command again within nine minutes." in " ".join(
        capsys.readouterr().err.split()
    )


class _Unanswered:
    """A run whose queue does not answer."""

    def __init__(self, told: str) -> None:
        self._told = told

    def run(self, *_: object) -> None:
        raise OutcomeUnknown(self._told)

    def count(self) -> int:
        return 1


@pytest.mark.parametrize("advice", [SAFE, "Sending again with the error's operation acts once.", ""])
def test_a_lost_answer_tells_to_run_the_command_again(capsys: pytest.CaptureFixture[str], advice: str) -> None:
    ended: Any = _Unanswered(f"redis://new did not answer. {advice} This was one part of several.".replace("  ", " "))
    assert carry_out(ended, ended, "adopting", follow=False, as_json=True) == 1
    assert (
        "bide: redis://new did not answer. This was one part of several. Run the same command again, within nine minutes"
        in (" ".join(capsys.readouterr().err.split()))
    )

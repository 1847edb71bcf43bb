"""Long histories beside the model, in which calls of before arrive again: after they were answered, and after others."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import redis

from bide.engines.redis.aio import calls as aio
from bide.engines.redis.aio.connections import AsyncConnection
from bide.engines.redis.script import Script, scripts
from bide.engines.redis.sync import calls as sync
from bide.engines.redis.sync.connections import Connection
from tests.model.expected import Divergence
from tests.model.long_history import check_long_history
from tests.model.runner import Runner
from tests.redis.invariants import invariants_hold
from tests.redis.late import Place
from tests.redis.small import places

LANE = 2  # among the arguments: '' where a script may run again at will
WRITES = {"put", "put_named", "put_ruled", "claim", "settle", "extend", "cancel", "reschedule", "requeue", "purge", "pause"}


@pytest.fixture(autouse=True)
def _as_the_model_has_it(place: Place, request: pytest.FixtureRequest) -> None:
    if "shards" in place.url:
        request.getfixturevalue("alike")


class Echoes:
    """All operations that were sent; some of them come again."""

    def __init__(self, client: redis.Redis, patch: pytest.MonkeyPatch) -> None:
        self.came: Counter[tuple[str, str]] = Counter()  # how often which script came again, and what became of it
        self._client = client
        self._draw = Random(1)
        self._sent: list[tuple[Script, Sequence[str], Sequence[Any]]] = []
        run_async, run_sync = AsyncConnection.run, Connection.run

        async def run_and_repeat(
            by: AsyncConnection, script: Script | None, keys: Sequence[str], args: Sequence[Any], **how: Any
        ) -> Any:
            answer = await run_async(by, script, keys, args, **how)
            self._answered(script, keys, args)
            return answer

        def run_and_repeat_sync(
            by: Connection, script: Script | None, keys: Sequence[str], args: Sequence[Any], **how: Any
        ) -> Any:
            answer = run_sync(by, script, keys, args, **how)
            self._answered(script, keys, args)
            return answer

        patch.setattr(AsyncConnection, "run", run_and_repeat)
        patch.setattr(Connection, "run", run_and_repeat_sync)

    def _answered(self, script: Script | None, keys: Sequence[str], args: Sequence[Any]) -> None:
        if script and args[LANE]:
            self._sent.append((script, keys, args))
        for _ in range(self._draw.choice([0, 0, 1]) if self._sent else 0):
            self._again(*self._draw.choice(self._sent[-self._draw.choice([1, 2, 10, 100]) :]))

    def _again(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> None:
        try:
            self._client.evalsha(script.sha, len(keys), *keys, *args)
        except redis.ResponseError as refused:
            self.came[script.name, str(refused).partition(" ")[0]] += 1
        else:
            self.came[script.name, "answered"] += 1


def play(place: Place, patch: pytest.MonkeyPatch, steps: int) -> Echoes:
    with place.server.client() as client:
        echoes = Echoes(client, patch)

        def watch(_: Runner) -> None:
            invariants_hold(client)

        check_long_history(places(place.url), seed=1, steps=steps, watch=watch)
    return echoes


def test_calls_that_arrive_again_change_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    echoes = play(place, monkeypatch, 1_000)
    assert {name for name, became in echoes.came if became == "answered"} >= WRITES - {"requeue", "extend"}
    assert {name for name, became in echoes.came if became == "OVERTAKEN"} >= WRITES - {"requeue", "extend"}


def test_a_lane_that_lets_an_overtaken_call_pass_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {
        name: without(each, "if last > NUMBER then return redis.error_reply('OVERTAKEN') end")
        for name, each in scripts().items()
    }
    for colour in (aio, sync):
        monkeypatch.setattr(colour, "scripts", lambda: planted)
    with pytest.raises(Divergence):
        play(place, monkeypatch, 100)


def without(script: Script, line: str) -> Script:
    text = script.text.replace(line, "")
    return Script(script.name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

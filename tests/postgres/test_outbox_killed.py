"""Relays that are killed at any time: of each key the last send wins, and what was cancelled is not sent any more."""

import os
import random
import time
from collections.abc import Callable

import psycopg
import pytest

from bide import CancelResult, Queue
from bide.queue import outbox
from bide.queue.sync import relay as relaying
from tests.sqlite.conftest import Child

pytestmark = pytest.mark.server
RELAY = """
    import sys
    import time
    from bide import BideError, Queue
    from bide.queue.sync import relay

    relay.LEASE = 1_000
    with Queue(sys.argv[1], namespace="shop", outbox=sys.argv[1]) as queue:
        engine = queue.session.open().engine
        put = engine.put

        def put_slowly(messages, **options):
            time.sleep(0.03)  # in which many are killed
            return put(messages, **options)

        engine.put = put_slowly
        print("ready")
        while True:
            try:
                queue.relay(wait=False)
            except BideError:
                pass
            time.sleep(0.01)
"""
SECONDS = 30.0 if os.environ.get("BIDE_LONG") else 8.0
KEYS = 30


@pytest.mark.always
@pytest.mark.timeout(180)
def test_the_last_word_on_each_key_counts(
    postgres_url: str, start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "LEASE", 1_000)
    draw = random.Random(3)
    wanted: dict[str, int | None] = {}
    results: list[CancelResult] = []
    seen: dict[str, int] = {}
    with Queue(postgres_url, namespace="shop", outbox=postgres_url) as queue, psycopg.connect(postgres_url) as own:
        queue.open()
        relays = [start(RELAY, postgres_url) for _ in range(2)]
        for each in relays:
            assert each.line() == "ready"
        end, kill_at, value = time.monotonic() + SECONDS, time.monotonic() + 0.5, 0
        while time.monotonic() < end:
            key = f"k{draw.randrange(KEYS)}"
            if wanted.get(key) is not None and draw.random() < 0.3:
                results.append(queue.cancel(topic="t", key=key))
                wanted[key] = None
            else:
                value += 1
                queue.send("t", value, key=key, delay="1h", if_exists="replace", connection=own)
                own.commit()
                wanted[key] = value
            info = queue.get(topic="t", key=(looked := f"k{draw.randrange(KEYS)}"))
            if info is not None:
                assert info.body >= seen.get(looked, 0), f"{looked} went back"
                seen[looked] = info.body
            if time.monotonic() > kill_at:
                relays.pop(0).kill()
                relays.append(start(RELAY, postgres_url))
                kill_at = time.monotonic() + draw.uniform(0.2, 1.0)
        for each in relays:
            each.kill()
        left = queue.session.open().outbox
        assert left is not None
        while (waiting := left.store.stats(outbox.TOPIC)).pending + waiting.leased:
            queue.relay(wait=False)
        found = {each.key: each.body for each in queue.messages("t", limit=1_000)}
    assert results
    assert set(results) == {CancelResult.CANCELLED}
    assert found == {key: value for key, value in wanted.items() if value is not None}
    assert value > 100

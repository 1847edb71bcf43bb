"""The contract suite on PostgreSQL, with all messages sent by the SQL function that is there for other languages."""

import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import msgspec
import pytest

import bide.engines.postgres
from bide.core.options import PRIORITIES
from bide.engines.base import NewMessage, Settings
from bide.engines.postgres import CAPABILITIES, PostgresSource, source
from bide.engines.postgres.aio.engine import AsyncPostgres
from bide.engines.postgres.layout import named
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from bide.types import Sent

SEND = """
select s.id, s.due, s.outcome
from unnest(
    %s::text[], %s::bytea[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::jsonb[], %s::int[],
    %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::int[]
) with ordinality as g(topic, body, delay, at, key, how, priority, headers, most, life, operation, within, longest, period,
    largest, place),
lateral bide.send_when(
    g.topic, g.body, g.delay * interval '1 millisecond', to_timestamp(g.at / 1000.0), g.key, g.how, g.priority, g.headers,
    g.most, g.life * interval '1 millisecond', g.operation, g.largest,
    g.longest * interval '1 millisecond', g.period * interval '1 millisecond', g.within, %s
) as s
order by g.place
"""


def columns(messages: Sequence[NewMessage]) -> list[list[Any]]:
    rows = [
        (
            new.topic, new.body[1:-1] if new.if_exists == "merge" else new.body,
            None if new.at is not None else new.delay, new.at, new.key, new.if_exists,
            PRIORITIES[new.level], msgspec.json.encode(dict(new.headers)).decode(), new.max_attempts, new.expires_in,
            new.operation, new.within, new.max_wait, new.unique_for,
            new.largest if new.if_exists == "merge" else 2**28,
        )
        for new in messages
    ]  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)]


ARGUMENTS = {  # of what is no argument for others, as it could push the engine's time
    "bide.send_bytes(": "bide.send_when(",
    "out id text": "within text default null, now bigint default null, out id text",
    "    within text;  -- tests make arguments of this, the id of the message whose handler sends, and\n": "",
    "    now bigint;  -- the engine's time\n": "",
}


def send_when() -> str:
    """The function that sends, with the time and the message within which it sends."""
    functions = files(bide.engines.postgres).joinpath("functions/8_send.sql").read_text("utf-8")
    [text] = [
        each
        for each in re.split("^(?=create or replace)", functions, flags=re.MULTILINE)
        if "function bide.send_bytes(" in each
    ]
    for ours, instead in ARGUMENTS.items():
        assert text.count(ours) == 1
        text = text.replace(ours, instead)
    return text


class SentBySql(AsyncPostgres):
    async def open(self) -> None:
        await super().open()
        await self._connections.run(named(send_when(), self._address.schema), ())

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        if connection is not None or not messages or any(new.past is not None for new in messages):
            return await super().put(messages, connection=connection, now=now)
        schema = self._address.schema
        found = await self._connections.run(SEND.replace("bide.", f'"{schema}".'), [*columns(messages), now])
        return [Sent(id, new.topic, due, outcome) for new, (id, due, outcome) in zip(messages, found, strict=True)]


class SendingSource(PostgresSource):
    def aio(self) -> AsyncPostgres:
        return SentBySql(self._address, CAPABILITIES, self._settings.dead_for, self._settings.dead_max)


@pytest.mark.variant("postgres")
class TestPostgresSend(EngineContract):
    capabilities = CAPABILITIES
    colours = ("async",)

    @pytest.fixture
    def make_source(self, postgres_used_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            asked = Settings(url=postgres_used_url, **settings)
            plain = source(asked)
            return SendingSource(plain._address, asked)

        return make

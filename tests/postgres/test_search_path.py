"""Whoever may create functions and operators in the database runs nothing as bide's user."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bide import Outgoing, Queue
from bide.cli import main
from bide.engines.base import Settings
from bide.engines.postgres import CAPABILITIES, layout, source
from bide.engines.postgres.layout import OURS, filled
from bide.engines.postgres.rows import CALLS
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.turns import COLOURS, LONG
from tests.postgres.hostile_names import count, hostile
from tests.postgres.owned import of_role
from tests.servers.postgres import EMPTY, PostgresServer
from tests.servers.programs import needs_postgres

SAFE = "search_path=pg_catalog, pg_temp"
CALLED = re.compile(r"\{schema\}\.(\w+)\(")

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def hostile_url() -> Iterator[str]:
    """A database of bide's user, in which somebody else may create in public, and did."""
    needs_postgres()
    with PostgresServer() as server:
        server.ask("create role app login")
        server.ask("create role intern login")
        url = server.database("hostile")
        server.ask("alter database hostile owner to app")
        server.ask("grant create, usage on schema public to public", database="hostile")
        with psycopg.connect(of_role(url, "intern"), autocommit=True) as intern:
            assert hostile(intern) > 5_000
        server.ask("alter role app set search_path = public, pg_catalog")
        with psycopg.connect(of_role(url, "app")) as app, pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
            app.execute("select 1::numeric * 2")  # else this file would show nothing
        yield of_role(url, "app")


@pytest.fixture(autouse=True)
def nothing_hijacked(hostile_url: str) -> Iterator[None]:
    """All of bide's tables are empty at first."""
    url = hostile_url.replace("app@", "postgres@")
    with psycopg.connect(url, autocommit=True, options="-c search_path=pg_catalog") as client:
        client.execute(EMPTY.encode())
        yield
        assert count(client) == 0


@pytest.mark.variant("postgres")
class TestAmongHostileNames(EngineContract):
    """All verbs."""

    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("sync",)

    @pytest.fixture
    def make_source(self, hostile_url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=hostile_url, **settings))

        return make


def test_the_senders_of_other_languages_call_nothing_hostile(hostile_url: str) -> None:
    with Queue(hostile_url, namespace="sql") as queue, psycopg.connect(hostile_url, autocommit=True) as client:
        queue.stats()
        for sent in (
            """'t', '{"a": [1, 2.5]}', delay => '5 minutes', key => 'k', headers => '{"x": "y"}', priority => 'low'""",
            """'t', '1', key => 'k', if_exists => 'replace', expires_in => '1 hour', max_attempts => 5""",
            """'t', '1', key => 'm', if_exists => 'merge'""",
            """'t', '1', key => 'm', if_exists => 'merge'""",
            """'t', '1', key => 'l', if_exists => 'later', delay => '1 second', max_wait => '1 minute'""",
            """'t', '1', key => 'u', unique_for => '1 minute'""",
            """'t', '1', operation => 'o', at => '2100-01-01'""",
        ):
            assert client.execute(f"select bide_sql.send({sent})".encode()).fetchone()
        assert len(queue.messages("t")) == 5


def test_calls_in_an_own_transaction_call_nothing_hostile(hostile_url: str) -> None:
    with Queue(hostile_url, namespace="own") as queue:
        queue.stats()
        with psycopg.connect(hostile_url) as own:
            sent = queue.send_many("t", [Outgoing(n, key=f"k{n}") for n in range(5)], connection=own)
            queue.cancel(sent[0].id, connection=own)
            queue.cancel(topic="t", key="k1", connection=own)
            queue.reschedule(sent[2].id, delay=60, connection=own)
            own.commit()
            [one, two] = queue.receive("t", limit=5)
            one.ack(connection=own)
            two.retry(connection=own)


def test_what_is_told_afterwards_calls_nothing_hostile(hostile_url: str) -> None:
    with Queue(hostile_url, namespace="late") as queue, psycopg.connect(hostile_url) as client:
        queue.stats()
        client.execute(filled(CALLS["tell"], "bide_late").encode(), [["t", "u"], 5])


@pytest.mark.parametrize("command", ["doctor", "stats", "topics", "migrate --check", "migrate --finish", "dead list t"])
def test_commands_call_nothing_hostile(hostile_url: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Queue(hostile_url, namespace="cli") as queue:
        queue.send_many("t", range(3))
        queue.receive("t")[0].bury("a reason")
    main([*command.split(), "--url", f"{hostile_url}?namespace=cli"])
    assert "hijacked" not in "".join(capsys.readouterr())


def test_the_doctor_has_all_its_answers_among_hostile_names(hostile_url: str) -> None:
    with Queue(hostile_url, namespace="sick") as queue:
        queue.send("t")
    names = {each.name for each in source(Settings(url=hostile_url, namespace="sick")).examine()}
    assert {"server", "rights", "layout", "locks", "engine time", "oldest overdue", "plan of a claim", "table message"} <= names


def test_each_function_that_a_program_calls_looks_in_pg_catalog_alone(hostile_url: str) -> None:
    """The others are only called by these, and look where their callers look."""
    sources = [file.read_text() for file in Path(layout.__file__).parent.rglob("*.py")]
    called = {*CALLED.findall(" ".join(sources)), "send", "send_bytes"}
    with Queue(hostile_url, namespace="heads") as queue, psycopg.connect(of_role(hostile_url, "app")) as client:
        queue.stats()
        found = client.execute(
            "select p.proname, coalesce(p.proconfig, '{}') from pg_catalog.pg_proc p "
            "where p.pronamespace operator(pg_catalog.=) 'bide_heads'::pg_catalog.regnamespace::pg_catalog.oid"
        ).fetchall()
    inner = {name for name, settings in found if SAFE not in settings}
    assert len(called) > 30
    assert called <= {name for name, _ in found}
    assert not called & inner
    for name in inner:
        assert re.search(rf"\bbide\.{name}\(", OURS.functions.replace(f"function bide.{name}(", "")), (
            f"{name} is called by nobody"
        )
    assert all("search_path" not in settings or SAFE in settings for _, settings in found)

"""What a user, a database or a server may be set to: bide works with it, or refuses it in a sentence."""

import pytest

from bide import ConfigError, Queue, Unavailable
from tests.servers.fixtures import NewPostgres
from tests.servers.postgres import PostgresServer

WORKS = {
    "default_transaction_isolation": "serializable",
    "search_path": "'nope, pg_temp'",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "bytea_output": "escape",
    "synchronous_commit": "off",
    "lock_timeout": "1",
    "client_encoding": "LATIN1",
    "DateStyle": "German",
    "enable_indexscan": "off",
}


@pytest.fixture
def weak_url(postgres_url: str, postgres_server: PostgresServer) -> str:
    """Of a user who may make a schema, and nothing else."""
    database = postgres_url.rpartition("/")[2]
    postgres_server.ask("create role weak login")
    postgres_server.ask(f"alter database {database} owner to weak")
    return postgres_url.replace("//postgres@", "//weak@")


def use_all(url: str) -> None:
    """Texts of every sort, there and back."""
    with Queue(url) as queue:
        body = {"ü": "€ \0 \U0001f600 \\x41 'quoted' \\\\"}
        queue.send("t", body, headers={"h": "€ \0 \\"}, key="€'\\", max_attempts=1)
        [delivery] = queue.receive("t")
        assert (delivery.body, delivery.headers, delivery.key) == (body, {"h": "€ \0 \\"}, "€'\\")
        delivery.bury("it broke: \0 € \\")
        [dead] = queue.messages("t", state="dead")
        assert dead.last_error == "it broke: \\x00 € \\"
        queue.send("t", b"\0\\'\x80\xff".hex(), delay=5)
        assert queue.stats("t").pending == 1


@pytest.mark.parametrize("name", WORKS)
def test_what_the_user_is_set_to_does_not_matter(name: str, weak_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.ask(f"alter role weak set {name} = {WORKS[name]}")
    use_all(weak_url)


@pytest.mark.parametrize("name", ["default_transaction_isolation", "standard_conforming_strings", "array_nulls"])
def test_what_cannot_be_set_behind_a_pooler_is_refused(
    name: str, pgbouncer_url: str, postgres_url: str, postgres_server: PostgresServer
) -> None:
    postgres_server.ask(f"alter database {postgres_url.rpartition('/')[2]} set {name} = {WORKS[name]}")
    with pytest.raises(ConfigError, match=f"behind a pooler bide needs `alter role … in database … set {name} = '"):
        use_all(pgbouncer_url)


def test_all_texts_go_through_a_pooler(pgbouncer_url: str) -> None:
    use_all(pgbouncer_url)


def test_a_user_who_may_not_write_is_told(weak_url: str, postgres_server: PostgresServer) -> None:
    use_all(weak_url)
    postgres_server.ask("alter role weak set default_transaction_read_only = on")
    with (
        pytest.raises(Unavailable, match="takes no writes: it is a standby, or default_transaction_read_only"),
        Queue(f"{weak_url}?timeout=0.1") as queue,
    ):
        queue.send("t")


def test_a_statement_timeout_that_is_too_short_is_named(weak_url: str, postgres_server: PostgresServer) -> None:
    use_all(weak_url)
    postgres_server.ask("alter role weak set statement_timeout = 1")
    with pytest.raises(Unavailable, match="statement timeout"), Queue(weak_url) as queue:
        queue.send_many("t", ["x"] * 1_000)


def test_a_database_that_stores_bytes_as_they_come_works(postgres_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.ask("create database bytes template template0 encoding 'SQL_ASCII' locale 'C'")
    use_all(postgres_server.url_of("bytes"))


def test_a_database_that_cannot_store_every_text_is_refused(postgres_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.ask("create database latin template template0 encoding 'LATIN1' locale 'C'")
    with pytest.raises(ConfigError, match="has the encoding LATIN1"):
        use_all(postgres_server.url_of("latin"))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("//postgres:secret@", "//postgres:wrong@", "password authentication failed"),
        ("//postgres:secret@", "//nobody:secret@", "password authentication failed"),
        ("//postgres:secret@", "//postgres@", "no password supplied"),
        ("/postgres?", "/nope?", "does not exist"),
    ],
)
def test_a_refused_login_is_told_at_once(right: str, wrong: str, said: str, new_postgres: NewPostgres) -> None:
    server = new_postgres(password="secret")
    with (
        pytest.raises(ConfigError, match=f"refuses the login: .*{said}"),
        Queue(f"{server.url}?timeout=600".replace(right, wrong)) as queue,
    ):
        queue.send("t")


def test_a_user_without_rights_is_told_what_to_do(postgres_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.ask("create role weak login")
    weak = postgres_url.replace("//postgres@", "//weak@")
    with pytest.raises(ConfigError, match=r"lacks a right: permission denied for database .* Run `bide migrate` as a user"):
        use_all(weak)

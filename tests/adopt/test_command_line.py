"""`bide adopt`: command lines that are wrong are refused before anything is read, in the words of their options."""

from pathlib import Path

import pytest

from bide.cli.adopt.options import REDIS
from bide.engines.redis.location import SCHEMES
from tests.cli.running import Bide

TABLE = ("table", "--query", "select 1", "--take", "delete")
LOGIN = "ann:geheim@127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("command", "given", "wanted"),
    [
        (("rabbitmq-ttl", "wait"), "redis", "amqp:// or amqps://"),
        (("redis-zset", "delayed"), "amqp", "rediss+cluster://"),
        (("bullmq", "mail"), "http", "redis://"),
        (("celery",), "amqp", "redis://"),
        (("rq", "default"), "postgres", "redis://"),
        (TABLE, "mysql", "postgres://, postgresql:// or sqlite://"),
    ],
)
def test_a_source_of_another_kind_is_refused(
    bide: Bide, folder: Path, command: tuple[str, ...], given: str, wanted: str
) -> None:
    (folder / "source").write_text(f"{given}://{LOGIN}\n")
    for option, value in (("--source", f"{given}://{LOGIN}"), ("--source-file", "source")):
        ended = bide("adopt", *command, "--topic", "t", option, value)
        assert (ended.code, ended.out) == (2, "")
        assert f"The URL of {option} begins with" in ended.err
        assert wanted in ended.err
        assert f"given was {given}://." in ended.err
        assert "geheim" not in ended.err
    assert not Path("bide.db").exists()


def test_what_is_no_url_is_not_repeated(bide: Bide) -> None:
    for url in ("geheim", "gehe1m://ann", "ann:geheim@host"):
        ended = bide("adopt", "rq", "default", "--source", url)
        assert (ended.code, "gehe" in ended.err) == (2, False)
    assert REDIS == SCHEMES


ZSET, FROM = ("redis-zset", "delayed"), ("--source", f"redis://{LOGIN}")
BOTH = "were given: leave one of them out."


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ((*ZSET, "--topic", "a", "--topic-field", "b", *FROM), f"Both --topic and --topic-field {BOTH}"),
        ((*ZSET, "--topic", "a", *FROM, "--source-file", "x"), f"Both --source and --source-file {BOTH}"),
        (
            (*TABLE, "sqlite:///x", "--topic", "t", "--source", "sqlite:///y"),
            f"Both a URL and --source or --source-file {BOTH}",
        ),
        ((*TABLE, "sqlite:///x", "--topic", "t", "--source-file", "y"), f"Both a URL and --source or --source-file {BOTH}"),
        ((*ZSET, "--topic", "t", *FROM, "--follow", "--dry-run"), f"Both --follow and --dry-run {BOTH}"),
        ((*ZSET, "--topic", "", *FROM), "--topic is empty"),
        ((*ZSET, "--topic", "t", "--key-field", "", *FROM), "--key-field is empty"),
        (("celery", "--topic", "", *FROM), "--topic is empty"),
        ((*ZSET, "--topic", "t", "--if-exists", "replace", *FROM), "--if-exists is about messages with a key"),
    ],
)
def test_options_that_contradict_each_other_are_refused(bide: Bide, command: tuple[str, ...], says: str) -> None:
    ended = bide("adopt", *command)
    assert (ended.code, ended.out, Path("bide.db").exists()) == (2, "", False)
    assert says in " ".join(ended.err.split())


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_keys_are_refused_at_once_for_a_queue_that_has_none(bide: Bide, dry: tuple[str, ...]) -> None:
    to = ("--url", "amqp://ann:geheim@127.0.0.1:1/", *FROM, *dry)
    ended = bide("adopt", *ZSET, "--topic", "t", "--key-field", "order", *to)
    assert (ended.code, ended.out) == (2, "")
    assert "amqp://127.0.0.1:1/ has no keys: leave out --key-field." in " ".join(ended.err.split())
    ended = bide("adopt", "rq", "default", *to)
    assert (ended.code, ended.out) == (2, "")
    assert "has no keys: the messages have the ids of the tasks as their keys." in " ".join(ended.err.split())

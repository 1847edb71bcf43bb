"""What `bide script send` prints: it takes what `send` takes in Python, refuses what that refuses, and stores the same."""

import random
import unicodedata
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import redis.exceptions as theirs

from bide import BadMessage, CancelResult, Queue
from bide.core import options
from bide.core.times import duration_ms
from bide.engines.base import NewMessage
from bide.engines.redis.script import send_script
from tests.redis.foreign import WITH_TIME, Foreign, arguments
from tests.redis.keyspace import bench_at, held
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer
from tests.worker.processes import open_shop

NOW = 4_000_000_000_000
HANDLER = """
@queue.task("t")
def handle(n):
    say("got", n)
"""


@pytest.fixture
def queue(redis_url: str) -> Iterator[Queue]:
    with Queue(redis_url) as queue:
        queue.send("first")
        yield queue


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def foreign(queue: Queue, client: redis.Redis) -> Foreign:
    return Foreign(client)


@pytest.fixture
def timed(queue: Queue, client: redis.Redis) -> Foreign:
    return Foreign(client, script=WITH_TIME)


def test_a_message_is_received_as_it_was_sent(queue: Queue, foreign: Foreign) -> None:
    id, due, outcome = foreign.send("order.cancel", '{"order": 42, "name": "ü"}')
    [delivery] = queue.receive("order.cancel")
    assert (delivery.id, delivery.body, delivery.attempt, delivery.due) == (id.decode(), {"order": 42, "name": "ü"}, 1, due)
    assert (outcome, foreign.calls) == (b"created", 1)
    delivery.ack()


def test_all_options_mean_what_they_mean_in_python(queue: Queue, foreign: Foreign) -> None:
    at = datetime(2100, 1, 1, 12, tzinfo=UTC)
    given = ["priority", "high", "headers", '{"a": "1/ü"}', "max_attempts", 7, "expires_in", "1h"]
    id, due, _ = foreign.send("t", "[]", "at", "2100-01-01T13:00:00+01:00", "key", "k", *given)
    assert foreign.send("t", "[1]", "delay", "15m", "key", "k") == [id, due, b"kept"]
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert (info.id, info.body, info.due_at, info.priority) == (id.decode(), [], at, "high")
    assert (info.headers, info.max_attempts, info.expires) == ({"a": "1/ü"}, 7, info.due + 3_600_000)
    with pytest.raises(theirs.ResponseError, match=f"EXISTS {id.decode()} {due} Another message"):
        foreign.send("t", "[1]", "key", "k", "if_exists", "error")
    [_, sooner, outcome] = foreign.send("t", "[2]", "delay", "15m", "key", "k", "if_exists", "replace")
    assert (outcome, sooner < due) == (b"replaced", True)
    assert foreign.send("t", "[3]", "key", "k", "if_exists", "later") == [id, sooner, b"postponed"]


def test_a_longest_wait_is_one_for_all_who_send(queue: Queue, foreign: Foreign) -> None:
    headers = msgspec.json.encode({"bide-first": "mine", "a": "b/c"})
    later = ["key", "k", "if_exists", "later", "headers", headers]
    id, due, _ = foreign.send("t", "1", *later, "delay", "1s", "max_wait", "1h")
    first = queue.get(id.decode())
    assert first is not None
    assert list(first.headers) == ["bide-first", "a"]
    assert first.headers == {"bide-first": str(due - 1_000), "a": "b/c"}
    sent = queue.send("t", 2, delay="9m", key="k", if_exists="later", max_wait="10m")
    assert sent.due > due
    assert foreign.send("t", "3", *later, "delay", "1m", "max_wait", "1m") == [id, sent.due, b"postponed"]
    last = queue.send("t", 4, delay="1h", key="k", if_exists="later", max_wait="1h")
    assert (last.id, last.due) == (id.decode(), due - 1_000 + 3_600_000)


def test_bodies_are_gathered_whoever_sends_them(queue: Queue, foreign: Foreign) -> None:
    id, due, outcome = foreign.send("t", '{"a": 1}', "key", "k", "if_exists", "merge", "delay", "1h", "headers", '{"a": "b"}')
    assert outcome == b"created"
    sent = queue.send("t", [2, "ü"], key="k", if_exists="merge")
    assert (sent.id, sent.due, sent.outcome) == (id.decode(), due, "merged")
    assert foreign.send("t", f'"{"3" * 1_500}"', "key", "k", "if_exists", "merge") == [id, due, b"merged"]
    assert foreign.send("t", "null", "key", "k", "if_exists", "merge") == [id, due, b"merged"]
    info = queue.get(sent)
    assert info is not None
    assert (info.body, info.headers) == ([{"a": 1}, [2, "ü"], "3" * 1_500, None], {"a": "b"})
    full = foreign.send("t", "5", "key", "k", "if_exists", "merge", "max_body", 900)
    assert full[2] == b"created"
    queue.send("t", 1, key="none", delay="1h")
    with pytest.raises(theirs.ResponseError, match="EXISTS "):
        foreign.send("t", "2", "key", "none", "if_exists", "merge")


def test_a_key_is_sent_once_in_a_period_whoever_sends_it(queue: Queue, foreign: Foreign) -> None:
    id, due, outcome = foreign.send("t", "1", "key", "k", "unique_for", "1h", "delay", "5s")
    assert (outcome, queue.cancel(id.decode())) == (b"created", CancelResult.CANCELLED)
    sent = queue.send("t", 2, key="k", unique_for="1h")
    assert (sent.id, sent.due, sent.outcome) == (id.decode(), due, "duplicate")
    assert foreign.send("t", "3", "key", "k", "unique_for", "1ms") == [id, due, b"duplicate"]
    with pytest.raises(theirs.ResponseError, match=f"EXISTS {id.decode()} {due} "):
        foreign.send("t", "4", "key", "k", "unique_for", "1h", "if_exists", "error")


def test_an_operation_acts_once_whoever_sends_it(queue: Queue, foreign: Foreign) -> None:
    first = foreign.send("t", "1", "operation", "once", "delay", "1h")
    assert foreign.send("t", "2", "operation", "once") == first
    assert queue.send("t", 3, operation="once").id == first[0].decode()
    again = queue.send("t", 4, operation="other")
    assert foreign.send("t", "5", "operation", "other")[0].decode() == again.id


MESSAGES = [
    NewMessage("t", b"x"),
    NewMessage("t", b"", delay=1),
    NewMessage("t", bytes(range(256)) * 3, delay=90_000, level=0),
    NewMessage("t", b"x" * 1_024, at=NOW + 5),
    NewMessage("t", b"x" * 1_025, at=NOW - 5, level=2),
    NewMessage("t", b"x" * 1_020, headers={"a": "b"}),
    NewMessage("t", b"x" * 2**20, headers={"ü": 'a/b"\\\n\0', "empty": ""}, max_attempts=1_000),
    NewMessage("t", b"x", expires_in=1, max_attempts=1),
    NewMessage("t", b"x", expires_in=3_155_760_000_000, delay=3_155_760_000_000),
    *[NewMessage("t", b"x", key="k" * length, expires_in=5) for length in (1, 254, 255, 256)],
    NewMessage("t", b"x" * 5_000, key="\N{GRINNING FACE}" * 256, headers={"a": "b"}),
]


async def test_what_is_stored_is_what_python_stores(redis_url: str, client: redis.Redis) -> None:
    async with bench_at(redis_url, now=NOW) as bench:
        await bench.put("other")
        foreign = Foreign(client, "shop", script=WITH_TIME)
        for new in MESSAGES:
            here = await bench.find(id=foreign.send(*arguments(new, NOW))[0].decode())
            there = await bench.find(id=(await bench.put_all(msgspec.structs.replace(new, topic="u")))[0].id)
            assert msgspec.structs.replace(there, id=here.id, topic="t") == here


DURATIONS = [
    "0s", "1ms", "90s", "1.1s", "1.0001s", "15m", "1h30m", "1h 30m", "0.1ms", "36525d", "0.000000001w", "1.999999999w", "5217w",
    "123456.123456789d", "000000000000001s", "999999999999999ms", "1.1h", "0.3d",
    # and what is none
    "", " ", "-1s", "+1s", "1e3", "1e3s", ".5s", "5.s", "1.s", "1.1.1s", "s", "1x", "1M", "1h30", "0x10", "NaN", "inf",
    "36526d",
    "1000000000000000s", "1.0000000001s", "1s\n", "1s\0", "\u0661s", "1 s" * 40,
]  # fmt: skip


@pytest.mark.parametrize("text", DURATIONS)
def test_a_duration_is_read_as_in_python_and_a_number_alone_is_seconds(timed: Foreign, text: str) -> None:
    try:
        expected = duration_ms(text)
    except BadMessage:
        with pytest.raises(theirs.ResponseError, match=r"^BADOPTION delay "):
            timed.send("t", "1", "delay", text, "now", NOW)
    else:
        assert timed.send("t", "1", "delay", text, "now", NOW)[1] == NOW + expected
        if text.endswith("s") and not text.endswith("ms"):
            assert timed.send("t", "1", "delay", text[:-1], "now", NOW)[1] == NOW + expected


def test_an_instant_is_read_as_in_python(timed: Foreign) -> None:
    dice = random.Random(7)
    for _ in range(300):
        zone = timezone(timedelta(minutes=dice.randrange(-1439, 1440)))
        micros = dice.choice([0, 1, 999, 1_000, 999_999, dice.randrange(10**6)])
        days = dice.choice([dice.randrange(-20_000, 40_000), 11_016, 47_540])  # also about 29 February
        at = datetime(1970, 1, 1, tzinfo=zone) + timedelta(days=days, seconds=dice.randrange(86_400), microseconds=micros)
        _, due, _ = timed.send("t", "1", "at", at.isoformat(), "now", 1)
        exact = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        instant = -(-exact // 1_000)
        assert due == (instant if instant > 1 else due_now(timed)), at.isoformat()  # what a clock of 1970 has not reached


def due_now(timed: Foreign) -> int:
    return int(timed.send("t", "1", "now", 1)[1])


@pytest.mark.parametrize(
    "text",
    [
        "2100-01-01T00:00Z",
        "2100-01-01T00:00:00,000Z",
        "2100-01-01 00:00:00+0000",
        "2100-01-01t00:00:00z",
        "2099-12-31T23:59:59.9995Z",
    ],
)
def test_an_instant_has_several_forms(timed: Foreign, text: str) -> None:
    assert timed.send("t", "1", "at", text, "now", NOW)[1] == 4_102_444_800_000


@pytest.mark.parametrize(
    "text",
    [
        "", "tomorrow", "2100-01-01", "2100-01-01T00:00:00", "2100-02-29T00:00:00Z", "2100-13-01T00:00:00Z",
        "2100-00-01T00:00:00Z",
        "2100-01-00T00:00:00Z", "2100-04-31T00:00:00Z", "2100-01-01T24:00:00Z", "2100-01-01T00:60:00Z", "2100-01-01T00:00:60Z",
        "2100-01-01T00:00:00+24:00", "2100-01-01T00:00:00+01", "4102444800", "4102444800000", "2100-01-01T00:00:00.Z",
        "2100-01-01T00:00:00Z\0", "3000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59",
    ],
)  # fmt: skip
def test_an_instant_that_is_none_or_too_far_is_refused(timed: Foreign, text: str) -> None:
    with pytest.raises(theirs.ResponseError, match=r"^BADOPTION .*(at is|hundred years)"):
        timed.send("t", "1", "at", text, "now", NOW)


BODIES = [
    b"null", b"true", b" [1, -0.5e-3, 10E+2] ", b'"a\\"b\\\\"', b'{"a": {"b": []}}', b'""', b"0", b"-0",
    b"123456789012345678901234567890",
    '"ü\N{GRINNING FACE}"'.encode(), b'"\\ud83d\\ude00"', b'"\x7f"', b'"NaN [x"', b'"\\u0000"',
    # and what is none
    b"", b" ", b"hello", b"'a'", b"01", b"1.", b".5", b"+1", b"1e", b"0x10", b"NaN", b"Infinity", b"-Infinity", b"nan",
    b"1e999",
    b"[1,]", b"[1", b"{1: 2}", b'{"a"}', b'"a', b'"a\nb"', b'"\x00"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"',
    b'"\\ud83d"', b"1 2",
    b"tru", b"True", b"None", b"[]]", b"\xef\xbb\xbf1", b"1\0", b'"\\x41"',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_a_body_is_taken_if_python_can_read_it(queue: Queue, foreign: Foreign, body: bytes) -> None:
    try:
        expected = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(theirs.ResponseError, match=r"^BADOPTION The body is not JSON"):
            foreign.send("t", body)
    else:
        foreign.send("t", body)
        [delivery] = queue.receive("t")
        assert delivery.body == expected


def test_a_body_of_bytes_is_for_a_queue_with_a_codec_of_its_own(queue: Queue, foreign: Foreign) -> None:
    every = bytes(range(256))
    id, *_ = foreign.send("t", every, "format", "bytes")
    info = queue.get(id.decode())
    assert info is not None
    assert info.body == every


def test_a_body_over_the_limit_is_refused_as_python_could_not_read_it(queue: Queue, foreign: Foreign) -> None:
    longest = '"' + "x" * (262_144 - 2) + '"'
    foreign.send("t", longest)
    assert queue.receive("t")[0].body == longest[1:-1]
    with pytest.raises(theirs.ResponseError, match="The body is 262145 bytes and the limit is 262144"):
        foreign.send("t", longest + " ")
    foreign.send("t", longest + " ", "max_body", 300_000)


def test_a_key_has_those_characters_that_it_has_in_python(foreign: Foreign) -> None:
    """But for those that are none yet, of which newer releases of Python know more."""
    head, tail = "local function is_utf8(text)", "-- A key or an operation"
    script = head + send_script().partition(head)[2].partition(tail)[0]
    script += "local told = {} for i = 1, #ARGV do told[i] = is_seen(ARGV[i]) and 1 or 0 end return told"
    for first in range(0, 0x110000, 4_096):
        every = [chr(code) for code in range(first, first + 4_096) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
        told: Any = foreign.client.eval(script, 0, *[f"a{each}b" for each in every])
        assert told == [each.isprintable() for each in every], hex(first)


NAMES = [
    b"k", b"a b", "ü\N{GRINNING FACE}".encode(), b"k" * 128, "ü".encode() * 128, "\U0010ffff".encode() * 2, b"~1.x",
    # and what is none
    b"", b"k" * 257, "ü".encode() * 257, b"a\nb", b"a\0", b"\x7f", b"\xc2\x85", "\u2028".encode(), b"\xff", b"\xc3", b"\xa9",
    "a\u00a0b".encode(), "\u200b".encode(), "\ufeffk".encode(),
    b"\xc0\x80",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xe2\xc3\xa9\x82\xac", b"\xf5\x80\x80\x80",
]  # fmt: skip


@pytest.mark.parametrize("option", ["key", "operation"])
@pytest.mark.parametrize("name", NAMES)
def test_a_key_or_operation_is_taken_if_every_receiver_can_read_it(foreign: Foreign, option: str, name: bytes) -> None:
    try:
        options.text(name.decode(), option, 256)
    except (UnicodeDecodeError, BadMessage):
        with pytest.raises(theirs.ResponseError, match=f"^BADOPTION {option}: give 1 to"):
            foreign.send("t", "1", option, name)
    else:
        id, due, _ = foreign.send("t", "1", option, name)
        assert foreign.send("t", "1", option, name) == [id, due, b"kept" if option == "key" else b"created"]


HEADERS = [
    "", "{", "[]", '["a"]', '{"a": 1}', '{"a": null}', '{"": "a"}', '{"a": {}}', "null", '"a"', b'{"a": "\xff"}', '{"a": "\n"}',
    '{"a": "\\ud800"}', "{" + ",".join(f'"h{i}": "{"x" * 80}"' for i in range(100)) + "}",
]  # fmt: skip
REFUSED: list[tuple[Any, ...]] = [
    (),
    ("",), ("no topic!", "1"), ("a\0", "1"), ("ü", "1"), ("t" * 129, "1"), ("t\n", "1"),
    ("t", "1", "dealy", "1s"), ("t", "1", "delay"), ("t", "1", "delay", "1s", "delay", "1s"), ("t", "1", "DELAY", "1s"),
    ("t", "1", "\0\r\n-EVIL", "1"), ("t", "1", "", ""), ("t", "1", "topic", "u"),
    ("t", "1", "now", "9000000000000"), ("t", "1", "within", "1"),
    ("t", "1", "delay", "1s", "at", "2100-01-01T00:00:00Z"),
    ("t", "1", "expires_in", "0s"), ("t", "1", "expires_in", "-1s"), ("t", "1", "expires_in", "101000w"),
    ("t", "1", "if_exists", "merge"), ("t", "1", "if_exists", "merge", "key", "k", "format", "bytes"),
    ("t", "1", "if_exists", "merge", "key", "k", "unique_for", "1m"),
    ("t", "123", "if_exists", "merge", "key", "k", "max_body", 4),
    ("t", "1", "if_exists", "merge", "key", "k", "max_wait", "1m", "delay", "1s"), ("t", "[", "if_exists", "merge", "key", "k"),
    ("t", "1", "unique_for", "1m"), ("t", "1", "unique_for", "1m", "key", "k", "if_exists", "later"),
    ("t", "1", "unique_for", "0", "key", "k"), ("t", "1", "unique_for", "1m", "max_wait", "1m", "key", "k"),
    ("t", "1", "max_wait", "1m"), ("t", "1", "max_wait", "1m", "key", "k"), ("t", "1", "max_wait", "1m", "if_exists", "later"),
    ("t", "1", "max_wait", "0", "key", "k", "if_exists", "later"), ("t", "1", "max_wait", "", "key", "k", "if_exists", "later"),
    ("t", "1", "max_wait", "1m", "delay", "2m", "key", "k", "if_exists", "later"),
    ("t", "1", "if_exists", "perhaps"), ("t", "1", "priority", "urgent"), ("t", "1", "priority", ""), ("t", "1", "format",
    "xml"),
    *[("t", "1", "max_attempts", each) for each in ("0", "1001", "-1", "1.5", "1e2", "0x1", "nan", "", "9" * 400)],
    *[("t", "1", "shards", each) for each in ("0", "65", "many")],
    *[("t", "1", "max_body", each) for each in ("0", "1e9", "9" * 20)],
    *[("t", "1", "headers", each) for each in HEADERS],
    ("t", "1", "operation", "~0.0123456789abcdef.1#0"),
]  # fmt: skip


@pytest.mark.parametrize("args", REFUSED, ids=repr)
def test_what_can_t_be_used_is_refused_and_changes_nothing(
    foreign: Foreign, client: redis.Redis, args: tuple[Any, ...]
) -> None:
    before = held(client)
    with pytest.raises(theirs.ResponseError, match=r"^BADOPTION [A-Za-z].*\.") as refused:
        foreign.call(foreign.first, *args)
    assert held(client) == before
    assert str(refused.value).isprintable()


WRONG_KEYS = [
    [], ["{bide:0}:meta"], ["bide", "bide"], ["{bide:0}:-", "{bide:0}:meta"], ["{bide}:meta", "{bide}:-"], ["{bide:0}:meta",
    "{bide:0}:"],
    ["{bide:0}:meta", "{bide:0}:-", "{bide:0}:x"], ["{bide:x}:meta", "{bide:x}:-"], ["{bide:128}:meta", "{bide:128}:-"],
    ["{bide:0}:meta", "{bide:0}:-x"], ["{bide:0}:meta", "{bide:0}:-0=x"], ["{:0}:meta", "{:0}:-"], ["{bide:0}:meta\0",
    "{bide:0}:-"],
]  # fmt: skip


@pytest.mark.parametrize("keys", WRONG_KEYS, ids=repr)
def test_other_keys_are_refused_and_change_nothing(foreign: Foreign, client: redis.Redis, keys: list[str]) -> None:
    before = held(client)
    with pytest.raises(theirs.ResponseError, match=r"^BADOPTION (Give two keys: .*\{bide:0\}:meta|The second key)"):
        foreign.call(keys, "t", "1")
    assert held(client) == before


@pytest.mark.parametrize("shards", [1, 3])
def test_a_missing_queue_is_made_only_if_that_is_asked_for(
    redis_url: str, client: redis.Redis, shards: int, tmp_path: Path
) -> None:
    foreign = Foreign(client)
    with pytest.raises(theirs.ResponseError, match=r"^NOQUEUE There is no queue in the namespace 'bide' yet.*shards 1"):
        foreign.send("t", "1")
    assert held(client) == {}
    with open_shop(tmp_path, f"{redis_url}?shards={shards}") as shop:
        shop.write(HANDLER)
        shop.start()
        for n in range(12):
            foreign.send("t", f'{{"n": {n}}}', "key", f"k{n}", "shards", shards)
        assert sorted(line.words[1] for line in shop.said("got", count=12)) == list(range(12))
    foreign.send("t", "{}", "shards", 5)
    assert client.hget("{bide:0}:meta", "shards") == str(shards).encode()


def test_another_layout_is_refused_and_left_as_it_is(foreign: Foreign, client: redis.Redis) -> None:
    client.hset("{bide:0}:meta", mapping={"layout": "99", "shards": "something new"})
    before = held(client)
    with pytest.raises(theirs.ResponseError, match=r"^BADLAYOUT This queue has layout 99, .* bide script send"):
        foreign.send("t", "1")
    assert held(client) == before


def test_a_full_server_takes_nothing(new_redis: NewRedis) -> None:
    server = new_redis()
    with Queue(server.url) as queue, server.client() as client:
        foreign = Foreign(client)
        queue.send("first")
        foreign.send("t", "1", "key", "k", "delay", "1h")
        before = held(client)
        client.config_set("maxmemory", "1")
        for args in (["key", "k"], ["key", "k", "if_exists", "replace"], []):
            with pytest.raises(theirs.ResponseError, match=r"OOM|maxmemory"):
                foreign.send("t", "2", *args)
        client.config_set("maxmemory", "0")
        assert held(client) == before


def test_messages_are_sent_in_a_transaction_with_what_else_is_in_it(
    queue: Queue, foreign: Foreign, client: redis.Redis
) -> None:
    with client.pipeline(transaction=True) as work:
        sender = Foreign(work)
        work.set("order", "42")
        sender.send("t", "1")
        sender.send("t", "2", "key", "k")
        assert queue.receive("t") == []
        work.execute()
    assert client.get("order") == b"42"
    assert sorted(each.body for each in queue.receive("t", limit=9)) == [1, 2]


def test_it_computes_shards_as_python_does(client: redis.Redis) -> None:
    head = "local function crc32(text)"
    script = head + send_script().partition(head)[2].partition("\nend\n")[0] + "\nend\nreturn crc32(ARGV[1])"
    for text in ("", "t k", "order.cancel ü\N{GRINNING FACE}", "x" * 1_000):
        assert client.eval(script, 0, text) == zlib.crc32(text.encode())

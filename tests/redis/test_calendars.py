"""The six calendars of a topic: what a slot has no room for goes to finer ones, and comes out on time; and their ids."""

import contextlib
import random
import re

import pytest

from bide.engines.base import NewMessage, Ref
from bide.engines.redis.protocol.encoding import LAYOUT, LOCAL, SPREAD, TOPIC, id_bytes, id_text, name_of
from bide.engines.redis.script import scripts
from bide.errors import ConfigError, SchemaMismatch
from bide.testing.contract.bench import START, Bench
from bide.types import CancelResult
from tests.redis.keyspace import COLOURS, bench_at, counts_are_true, finish_all, names, put_many, take_all
from tests.redis.small import use_small_scripts
from tests.servers.redis import RedisServer

LENGTHS = {"hours": 134_217_728, "hour": 4_194_304, "minute": 65_536, "seconds": 2_048, "moments": 64, "instants": 1}
SORTS = (*LENGTHS, "near", "ready")
BEGIN = (START // LENGTHS["hours"] + 1) * LENGTHS["hours"]  # all calendars begin a slot here
both_colours = pytest.mark.parametrize("colour", COLOURS)


def home(id: str) -> str:
    """The sort of place that a message was born in."""
    return SORTS[(name_of(id).local[0] - ord("A")) % len(SORTS)]


async def put_at(bench: Bench, dues: list[int]) -> dict[str, int]:
    sent = await bench.put_all(*[NewMessage("t", b"x", at=due) for due in dues])
    return {each.id: each.due for each in sent}


async def come_out_on_time(bench: Bench, dues: dict[str, int]) -> None:
    left = dict(dues)
    for mark in sorted({*left.values(), *(due - 1 for due in left.values())}):
        bench.now = max(bench.now, mark)
        got = await take_all(bench, "t")
        assert {each.id for each in got} == {id for id, due in left.items() if due <= bench.now}
        assert len({each.id for each in got}) == len(got)
        for each in got:
            assert each.due == left.pop(each.id)
        await finish_all(bench, got)
        await counts_are_true(bench, ["t"])
    assert not left


def nothing_is_left(server: RedisServer) -> None:
    with server.client() as client:
        assert not [name for name in names(client) if ":1:" in name]


@both_colours
@pytest.mark.parametrize("calendar", ["minute", "seconds", "moments", "instants"])
@pytest.mark.usefixtures("small_scripts")
async def test_what_a_slot_has_no_room_for_comes_out_of_finer_ones_on_time(
    redis_url: str, redis_server: RedisServer, colour: str, calendar: str
) -> None:
    draw = random.Random(7)
    async with bench_at(redis_url, colour, now=BEGIN - 1_000) as bench:
        dues = await put_at(bench, [BEGIN + LENGTHS[calendar] // 2 + draw.randrange(LENGTHS[calendar]) for _ in range(40)])
        assert calendar in {home(id) for id in dues}
        await come_out_on_time(bench, dues)
        nothing_is_left(redis_server)


@both_colours
@pytest.mark.usefixtures("small_scripts")
async def test_newcomers_of_sealed_slots_come_on_time_wherever_they_go(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    draw = random.Random(8)
    async with bench_at(redis_url, colour, now=BEGIN - 1_000) as bench:
        dues = await put_at(bench, [BEGIN + 30_000 + draw.randrange(4_000) for _ in range(5)])
        bench.now = BEGIN + 29_500
        for _ in range(8):
            assert not await bench.claim("t", limit=100)
        dues |= await put_at(bench, [BEGIN + 30_000 + draw.randrange(4_000) for _ in range(30)])
        bench.now = BEGIN + 30_000
        first = await take_all(bench, "t")
        assert {each.id for each in first} == {id for id, due in dues.items() if due <= bench.now}
        dues |= await put_at(bench, [bench.now + 1 + draw.randrange(100) for _ in range(30)])
        await finish_all(bench, first)
        assert {home(id) for id in dues} >= {"near", "seconds", "moments"}
        await come_out_on_time(bench, {id: due for id, due in dues.items() if due > bench.now})
        nothing_is_left(redis_server)


@both_colours
@pytest.mark.usefixtures("small_scripts")
async def test_a_slot_whose_numbers_are_used_up_sends_the_rest_to_the_zset(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    async with bench_at(redis_url, colour, now=BEGIN - 1_000) as bench:
        at = BEGIN + 90_000
        ids = await put_many(bench, "t", 100, at=at)
        homes = [home(id) for id in ids]
        assert homes.count("instants") == 32
        assert homes.count("near") == 100 - 32 - 12 - 4 * 3
        gone = ids[10:40]
        await bench.engine.cancel([Ref(id) for id in gone], now=bench.now)
        await come_out_on_time(bench, {id: at for id in ids if id not in gone})
        nothing_is_left(redis_server)


@both_colours
@pytest.mark.usefixtures("small_scripts")
async def test_a_key_finds_its_message_in_a_minute_that_is_crowded_with_others(redis_url: str, colour: str) -> None:
    """The index of keys has no name for the last of a minute, which has room for more messages without a key."""
    async with bench_at(redis_url, colour, now=BEGIN - 1_000) as bench:
        at = [BEGIN + 30_000 + 900 * n for n in range(20)]
        crowd = await put_at(bench, at[:10])
        keyed = await bench.put_all(*[NewMessage("t", b"x", at=each + 1, key=f"k{n}") for n, each in enumerate(at)])
        assert sum(home(id) == "minute" for id in crowd) == 6
        assert not any(home(each.id) == "minute" for each in keyed)
        for n, each in enumerate(keyed):
            assert (await bench.find(topic="t", key=f"k{n}")).id == each.id
        for n in range(0, 20, 2):
            assert await bench.cancel(topic="t", key=f"k{n}") is CancelResult.CANCELLED
        await come_out_on_time(bench, crowd | {each.id: each.due for each in keyed[1::2]})


async def test_a_topic_of_few_messages_has_no_slots_of_seconds(redis_url: str) -> None:
    """Such a slot is worth its keys only where there are many messages."""
    async with bench_at(redis_url, now=BEGIN) as bench:
        homes: set[str] = set()
        for _ in range(50):
            homes.add(home((await bench.put("t", delay=5_000)).id))
            bench.move(700)
            await finish_all(bench, await take_all(bench, "t"))
        assert homes <= {"hours", "hour", "minute", "near"}


@pytest.mark.parametrize("turn", [0, 1])
async def test_messages_sent_by_turns_with_others_of_one_full_time_lie_as_densely_as_alone(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """A few of a batch tell whether its slots are full; once these were all of one kind, and the others got a slot each."""
    use_small_scripts(monkeypatch, {"FEW": 64, "SOME": 64})
    draw, noon, day = random.Random(9), BEGIN + 43_200_000, 86_400_000
    async with bench_at(redis_url, now=BEGIN) as bench:
        homes: set[str] = set()
        for _ in range(10):
            dues = [noon if i % 2 == turn else BEGIN + 1 + draw.randrange(day) for i in range(1_000)]
            sent = await put_at(bench, dues)
            homes |= {home(id) for id, due in sent.items() if due // 65_536 != noon // 65_536}
        assert homes == {"hours", "hour", "minute"}


async def send_one(url: str, colour: str) -> None:
    async with bench_at(url, colour) as bench:
        await bench.put("t")


@both_colours
async def test_what_an_older_release_has_stored_is_refused_and_said_what_to_do(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    with redis_server.client() as client:
        for layout, advice in (("1", "let workers of the older release finish its messages"), ("99", "update bide")):
            client.flushall()
            client.hset("{shop:0}:meta", mapping={"layout": layout, "raw": "1", "mark": "1"})
            client.hset("{shop:0}:topics", "t", "1")
            before = client.hgetall("{shop:0}:meta")
            with pytest.raises(SchemaMismatch, match=f"layout {layout}.*{advice}"):
                await send_one(redis_url, colour)
            assert names(client) == {"{shop:0}:meta", "{shop:0}:topics"}
            assert client.hgetall("{shop:0}:meta") == before


@both_colours
@pytest.mark.parametrize("layout", ["1", "2", "99"])
async def test_what_an_older_release_has_left_empty_is_taken_over(
    redis_url: str, redis_server: RedisServer, colour: str, layout: str
) -> None:
    left = {"layout": layout, "shards": "1", "raw": "1", "mark": "1", "topic": "2", "claim": "0001795831785330"}
    with redis_server.client() as client:
        client.flushall()
        client.hset("{shop:0}:meta", mapping=left)
        client.hset("{shop:0}:lanes:2993052", "lane", "what has run")
        if layout == "99":
            with pytest.raises(SchemaMismatch, match="update bide"):
                await send_one(redis_url, colour)
            return
        async with bench_at(redis_url, colour) as bench:
            assert (await bench.engine.stats(now=bench.now)).ready == 0
            assert client.hget("{shop:0}:meta", "layout") == layout.encode()  # who only looks changes nothing
            claimed = await bench.running("t")
            assert await bench.end(claimed, "done") == "done"
        assert client.hget("{shop:0}:meta", "layout") == LAYOUT.encode()


@both_colours
async def test_a_shard_of_an_older_release_that_is_not_empty_is_refused(
    redis_url: str, redis_server: RedisServer, colour: str
) -> None:
    with redis_server.client() as client:
        client.flushall()
        for shard in range(3):
            client.hset(f"{{shop:{shard}}}:meta", mapping={"layout": "1", "shards": "3", "raw": "1", "mark": "1"})
        client.zadd("{shop:2}:graves", {"7": 1})
        async with bench_at(f"{redis_url}?shards=3", colour) as bench:
            for i in range(20):
                with contextlib.suppress(SchemaMismatch):
                    await bench.put("t", key=f"{i}")
            with pytest.raises(SchemaMismatch, match="the older release"):
                await bench.engine.stats("t", now=bench.now)
        found = [client.hget(f"{{shop:{shard}}}:meta", "layout") for shard in range(3)]
        assert found == [LAYOUT.encode(), LAYOUT.encode(), b"1"]
        with pytest.raises(ConfigError, match="shards=3"):  # else the messages of the last one would be forgotten
            await send_one(f"{redis_url}?shards=2", colour)


def test_both_sides_speak_of_one_layout() -> None:
    for script in scripts().values():
        assert re.findall(r"^local (LAYOUT|SPREAD) = '(\w+)'", script.text, re.MULTILINE) == [
            ("LAYOUT", LAYOUT),
            ("SPREAD", SPREAD),
        ]
        for sizes in re.findall(r"^local TOPIC, ID, FULLID = (\d+, \d+, \d+)", script.text, re.MULTILINE):
            assert sizes == f"{TOPIC}, {LOCAL}, {TOPIC + LOCAL}"


async def test_an_id_is_short_and_safe_in_urls_and_shells(redis_url: str) -> None:
    async with bench_at(redis_url + "?shards=64", now=BEGIN) as bench:
        ids = [(await bench.put("t", key=f"{i}")).id for i in range(200)]
        assert all(re.fullmatch(r"[A-P][A-Za-z0-9_-]{23}", id) for id in ids)
        assert all(id_text(id_bytes(id) or b"") == id for id in ids)
        assert {name_of(id).shard for id in ids} > set(range(0, 60, 20))
        far = await bench.put("t", delay=36_525 * 86_400_000)
        assert (await bench.find(id=far.id)).due == far.due


@pytest.mark.parametrize(
    "text", ["", "x", "A" * 23, "A" * 25, "+" * 24, "A" * 23 + "=", "ä" * 24, "A" * 24, "A" * 23 + "\n", "00" * 17]
)
def test_a_text_that_is_no_id_names_nothing(text: str) -> None:
    assert id_bytes(text) is None
    assert name_of(text).local == b""

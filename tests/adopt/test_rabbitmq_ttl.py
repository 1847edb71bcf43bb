"""`bide adopt rabbitmq-ttl`: messages that wait for their TTL become messages that wait for their time."""

import asyncio
import json
import stat
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiormq
import pytest
from pamqp.commands import Basic

from bide import Queue
from bide.adopt.adoption import Adoption, destination_of
from bide.adopt.rabbitmq.notebook import Letter, Notebook, Waits, due
from bide.adopt.rabbitmq.ttl import TTLQueue, opened
from bide.adopt.shape import Shape
from bide.errors import QueueFull, Unavailable
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

HOUR = 3_600_000
COMMAND = ("adopt", "rabbitmq-ttl", "wait", "--topic", "t", "--json")


class Old:
    """The old system: a queue `wait`, whose messages are dead-lettered to a queue `work`."""

    def __init__(self, url: str, kind: str, **limits: Any) -> None:
        self.url: str = url
        self._kind = kind
        self._limits = limits

    def declare(self) -> None:
        self._run(self._declare)

    def send(self, bodies: Sequence[bytes], **properties: Any) -> None:
        self._run(lambda channel: self._send(channel, "wait", bodies, properties))

    def rejected(self, bodies: Sequence[bytes]) -> None:
        """Messages that a consumer of `work` has rejected, which passes them to `wait`."""
        self._run(lambda channel: self._reject(channel, bodies))

    def count(self, queue: str) -> int:
        return int(self._run(lambda channel: self._count(channel, queue)))

    def looked_at(self) -> None:
        """All in `wait` was in the hands of somebody, who let it go."""
        number = self.count("wait")
        self._run(lambda channel: self._get(channel, number))
        while self.count("wait") < number:
            pass

    def received(self, queue: str) -> list[bytes]:
        found: list[bytes] = self._run(lambda channel: self._received(channel, queue))
        return found

    def _run(self, work: Any) -> Any:
        async def connected() -> Any:
            async with aiormq.connect(self.url) as connection:
                return await work(await connection.channel())

        coroutine: Coroutine[Any, Any, Any] = connected()
        return asyncio.run(coroutine)

    async def _declare(self, channel: Any) -> None:
        for name, other in (("wait", "work"), ("work", "wait")):
            arguments = {"x-queue-type": self._kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
            await channel.queue_declare(name, durable=True, arguments=arguments | (self._limits if name == "wait" else {}))

    async def _send(self, channel: Any, queue: str, bodies: Sequence[bytes], properties: dict[str, Any]) -> None:
        for body in bodies:
            await channel.basic_publish(body, routing_key=queue, properties=Basic.Properties(**properties))

    async def _reject(self, channel: Any, bodies: Sequence[bytes]) -> None:
        await self._send(channel, "work", bodies, {})
        for _ in bodies:
            got = await channel.basic_get("work")
            await channel.basic_reject(got.delivery.delivery_tag, requeue=False)
        while await self._count(channel, "wait") < len(bodies):
            pass

    async def _get(self, channel: Any, number: int) -> None:
        for _ in range(number):
            await channel.basic_get("wait")

    async def _count(self, channel: Any, queue: str) -> int:
        return (await channel.queue_declare(queue, passive=True)).message_count or 0

    async def _received(self, channel: Any, queue: str) -> list[bytes]:
        found = []
        while not isinstance((got := await channel.basic_get(queue, no_ack=True)).delivery, Basic.GetEmpty):
            found.append(bytes(got.body))
        return found


@pytest.fixture(params=["classic", "quorum"])
def old(request: pytest.FixtureRequest, rabbitmq_url: str) -> Old:
    made = Old(rabbitmq_url, request.param)
    made.declare()
    return made


def bodies(count: int) -> list[bytes]:
    return [json.dumps({"order": number}).encode() for number in range(count)]


def now() -> int:
    return time.time_ns() // 1_000_000


def test_a_message_is_due_at_its_timestamp_and_its_expiration(bide: Bide, old: Old) -> None:
    stamp = int(time.time()) - 100
    properties = {"expiration": str(HOUR), "timestamp": datetime.fromtimestamp(stamp, UTC), "message_id": "m-1"}
    old.send(bodies(1_200), **properties, headers={"tenant": "7", "tries": 2})
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, ended.err, json.loads(ended.out)["adopted"]) == (0, "", 1_200)
    found = everything("t")
    assert sorted(each.body["order"] for each in found) == list(range(1_200))
    assert {each.due for each in found} == {stamp * 1_000 + 1_000 + HOUR}
    assert found[0].headers == {"tenant": "7", "tries": "2", "amqp-message-id": "m-1"}
    assert (old.count("wait"), old.count("work")) == (0, 0)


def test_a_rejected_message_is_due_from_the_time_of_its_rejection(bide: Bide, old: Old) -> None:
    before = now()
    old.rejected(bodies(3))
    after = now()
    ended = bide(*COMMAND, "--ttl", "1h", "--source", old.url)
    assert (ended.code, ended.err) == (0, "")
    for each in everything("t"):
        assert before + HOUR <= each.due <= after + HOUR + 1_000


def test_a_message_that_does_not_tell_when_it_came_waits_a_whole_ttl(bide: Bide, old: Old) -> None:
    old.send(bodies(3), expiration=str(HOUR))
    before = now()
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, ended.err) == (
        0,
        "3 messages did not tell when they came: they are due a whole TTL after they were taken.\n",
    )
    assert all(before + HOUR <= each.due for each in everything("t"))


def test_a_dry_run_leaves_all_as_it_is(bide: Bide, old: Old) -> None:
    old.send(bodies(3), expiration=str(HOUR))
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", old.url).out)
    assert (looked["count"], len(looked["first"]), looked["held"]) == (3, 3, 0)
    assert sorted(old.received("wait")) == bodies(3)
    assert not Path("bide-adopt.db").exists()


def test_what_cannot_be_read_stays_and_blocks_nothing(bide: Bide, old: Old) -> None:
    old.send([b"no json", *bodies(3)], expiration=str(HOUR))
    old.send([b'"without a TTL"'])
    ended = bide(*COMMAND, "--source", old.url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"]) == (1, 3)
    assert told["refused"] == {"is not JSON": 1, "has no expiration: give the queue's x-message-ttl with --ttl": 1}
    assert sorted(old.received("wait")) == [b'"without a TTL"', b"no json"]


def test_an_x_death_that_the_broker_has_not_written_holds_nothing_up(bide: Bide, old: Old) -> None:
    for made_up in (5, True, "text", {"a": 1}, [1, "x"]):
        old.send(bodies(1), expiration=str(HOUR), headers={"x-death": made_up})
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, json.loads(ended.out)["adopted"], old.count("wait")) == (0, 5, 0)


def test_a_time_at_which_no_message_came_is_not_believed(bide: Bide, old: Old) -> None:
    for year in (1980, 2006, 2107, 2200, 9999):
        old.send([str(year).encode()], expiration=str(HOUR), timestamp=datetime(year, 12, 31, tzinfo=UTC))
    old.send([b"1"], expiration=str(HOUR), timestamp=datetime.fromtimestamp(time.time() + 86_400, UTC))
    before = now()
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 6)
    assert "6 messages did not tell when they came" in ended.err
    assert all(before + HOUR <= each.due <= now() + HOUR + 1 for each in everything("t"))


@pytest.mark.parametrize(("when", "believed"), [(-1, False), (0, True), (1, False)])
def test_an_x_death_with_such_a_time_is_not_believed(when: int, believed: bool) -> None:
    died = {-1: 1_000, 0: now() - 60_000, 1: now() + 60_000}[when]
    found = Letter(b"1", "", "wait", expiration=str(HOUR), deaths=(("work", died),))
    at, known = due(found, Waits(queue="wait"))
    assert known == believed
    assert at == died + 1_000 + HOUR if believed else at > now() - 1_000 + HOUR


class Far(datetime):
    """A timestamp that no datetime can have."""

    def timestamp(self) -> float:
        return 2**63


def test_a_message_that_the_driver_cannot_decode_is_told_by_its_place(bide: Bide, old: Old) -> None:
    old.send(bodies(2), expiration=str(HOUR))
    old.send([b"1"], expiration=str(HOUR), timestamp=Far(2030, 1, 1))
    for more in ((), ("--dry-run",)):
        ended = bide(*COMMAND, "--source", old.url, *more)
        assert ended.code == 1
        assert ": of the queue wait, message 3 from the head can't be decoded: " in ended.err
        assert "year 292278994 is out of range. Take it out of the queue" in ended.err
        while old.count("wait") < 3:
            pass


def test_the_routing_key_may_be_the_topic_if_no_other_is_named(bide: Bide, old: Old) -> None:
    old.send(bodies(2), expiration=str(HOUR))
    command = ("adopt", "rabbitmq-ttl", "wait", "--topic-is-routing-key", "--source", old.url)
    for more in (("--topic", "t"), ("--topic-field", "order")):
        both = bide(*command, *more)
        assert both.code == 2
        assert "Give either --topic-is-routing-key or a topic" in both.err
    assert bide(*command).code == 0
    assert len(everything("wait")) == 2


def test_a_body_that_is_no_object_may_become_one(bide: Bide, old: Old) -> None:
    old.send([b"42"], expiration=str(HOUR))
    assert bide(*COMMAND, "--body-as", "order", "--source", old.url).code == 0
    assert [each.body for each in everything("t")] == [{"order": 42}]


def test_a_body_that_is_text_with_json_in_it_may_be_parsed(bide: Bide, old: Old) -> None:
    old.send([json.dumps('{"order": 42}').encode()], expiration=str(HOUR))
    assert bide(*COMMAND, "--parse-body", "--source", old.url).code == 0
    assert [each.body for each in everything("t")] == [{"order": 42}]


def test_the_file_of_what_was_taken_is_for_its_user_alone(folder: Path) -> None:
    Notebook(folder / "bide-adopt.db", "wait").close()
    assert stat.S_IMODE((folder / "bide-adopt.db").stat().st_mode) == 0o600
    with pytest.raises(Unavailable, match="no-folder/state can't be made"):
        Notebook(folder / "no-folder" / "state", "wait")


class Killed(Exception):
    """The end of a run, at some place."""


def die(*_: Any) -> None:
    raise Killed


def take_and_die(source: TTLQueue) -> Any:
    take = source._broker.take

    def both(tags: Sequence[int]) -> None:
        take(tags)
        die()

    return both


def source(old: Old, ttl: int | None = None) -> TTLQueue:
    return opened(old.url, Waits(queue="wait", ttl=ttl), Path("bide-adopt.db"), Shape(topic="t"), look_only=False)


def test_what_a_message_tells_of_when_it_came_need_not_be_believed(bide: Bide, old: Old) -> None:
    sent = datetime.fromtimestamp(time.time() - 600, UTC)
    old.send([b"1"], expiration=str(HOUR), timestamp=sent)
    before = time.time_ns() // 1_000_000
    ended = bide(*COMMAND, "--source", old.url, "--whole-ttl")
    assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 1)
    assert "1 message did not tell when they came" in ended.err
    [found] = everything("t")
    assert found.due >= before + HOUR


@pytest.mark.parametrize("place", ["write", "before the ack", "after the ack", "put_many", "finish"])
def test_a_killed_run_goes_on_where_it_was(bide: Bide, old: Old, place: str, folder: Path) -> None:
    old.send(bodies(30), expiration=str(HOUR))
    with Queue(URL) as queue:
        queue.session.open()
        made = source(old)
        adoption = Adoption(made, queue, batch=10)
        victims: dict[str, tuple[Any, str, Any]] = {
            "write": (made._notebook, "write", die),
            "before the ack": (made._broker, "take", die),
            "after the ack": (made._broker, "take", take_and_die(made)),
            "put_many": (queue.session, "put_many", die),
            "finish": (made, "finish", die),
        }
        victim, verb, does = victims[place]
        setattr(victim, verb, does)
        with pytest.raises(Killed):
            adoption.run(lambda _: None, lambda: False)
        made.close()  # as the end of the process ends its connections
    ended = bide(*COMMAND, "--source", old.url)
    told = json.loads(ended.out)
    resumed = {"write": 0, "before the ack": 0, "after the ack": 10}.get(place, 20)
    assert (ended.code, told["adopted"], told["resumed"]) == (0, 30, resumed)
    assert sorted(each.body["order"] for each in everything("t")) == list(range(30))
    assert (old.count("wait"), old.count("work")) == (0, 0)


def test_a_run_with_a_ttl_is_resumed_without_it(bide: Bide, old: Old, folder: Path) -> None:
    """When what is held is due was noted."""
    old.send(bodies(3))
    made = source(old, ttl=HOUR)
    made.aim(destination_of(Queue(URL)))
    assert len(made.take(3).found) == 3
    made.close()
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, json.loads(ended.out)["adopted"]) == (0, 3)
    assert sorted(each.body["order"] for each in everything("t")) == [0, 1, 2]


def test_only_what_was_adopted_is_told_as_a_guess(old: Old, folder: Path) -> None:
    old.send(bodies(3), expiration=str(HOUR))
    made = source(old)
    taken = made.take(3).found
    assert made.guessed == 0
    made.give_back([taken[0].name])
    made.finish([each.name for each in taken[1:]], lambda _: None)
    assert made.guessed == 2
    made.close()


def test_what_the_queue_refuses_goes_back_and_expires_there(bide: Bide, old: Old, folder: Path) -> None:
    old.send(bodies(5), expiration="4000")
    with Queue(URL) as queue:
        queue.session.open()
        made = source(old)

        def full(_: Any) -> None:
            raise QueueFull("The disk is full.")

        vars(queue.session)["put_many"] = full
        with pytest.raises(QueueFull):
            Adoption(made, queue).run(lambda _: None, lambda: False)
        made.close()
    while old.count("work") < 5:
        pass
    assert sorted(old.received("work")) == bodies(5)


def test_all_that_cannot_be_read_is_counted(bide: Bide, old: Old) -> None:
    old.send([b"no json"] * 2_100, expiration=str(HOUR))
    old.send(bodies(3), expiration=str(HOUR))
    told = json.loads(bide(*COMMAND, "--source", old.url).out)
    assert (told["adopted"], told["refused"]) == (3, {"is not JSON": 2_100})


def test_what_went_back_is_not_held_if_the_rest_has_no_room(bide: Bide, rabbitmq_url: str, folder: Path) -> None:
    old = Old(rabbitmq_url, "classic", **{"x-max-length": 10, "x-overflow": "reject-publish"})
    old.declare()
    old.send(bodies(10), expiration=str(HOUR))
    with Queue(URL) as queue:
        queue.session.open()
        made = source(old)

        def full(_: Any) -> None:
            old.send(bodies(5), expiration=str(HOUR))  # a producer takes the room in the old queue
            raise QueueFull("The disk is full.")

        vars(queue.session)["put_many"] = full
        with pytest.raises(QueueFull):
            Adoption(made, queue).run(lambda _: None, lambda: False)
        made.close()
    assert old.count("wait") == 10
    told = json.loads(bide(*COMMAND, "--source", old.url).out)
    assert (told["adopted"], told["resumed"]) == (15, 5)
    assert sorted(each.body["order"] for each in everything("t")) == sorted([*range(10), *range(5)])


def test_messages_that_are_equal_are_no_proof(bide: Bide, old: Old, folder: Path) -> None:
    properties = {"expiration": str(HOUR), "message_id": "of all"}
    old.send(bodies(6) * 2, **properties)
    old.looked_at()
    with Queue(URL) as queue:
        queue.session.open()
        made = source(old)
        setattr(made._broker, "take", take_and_die(made))  # noqa: B010
        with pytest.raises(Killed):
            Adoption(made, queue, batch=10).run(lambda _: None, lambda: False)
        made.close()
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, json.loads(ended.out)["held"]) == (1, 10)
    told = json.loads(bide(*COMMAND, "--doubtful", "send", "--source", old.url).out)
    assert (told["adopted"], told["resumed"]) == (12, 10)
    assert sorted(each.body["order"] for each in everything("t")) == sorted([*range(6), *range(6)])

"""`bide move`: what moves, what stays, and what is told."""

import itertools
import json
from pathlib import Path

import pytest

from bide import Outgoing, Queue
from bide.errors import ConfigError
from bide.queue.schedules.records import MOVING
from bide.types import Info
from tests.cli.running import Bide
from tests.servers.fixtures import NewRedis

FIRST, SECOND = "sqlite:///first.db", "sqlite:///second.db"
HOUR, DAY = "1h", 86_400


def everything(queue: Queue) -> list[Info]:
    return [each for topic in queue.topics() for each in queue.messages(topic, limit=1_000)]


def kept(message: Info) -> tuple[object, ...]:
    """All that stays the same, whatever the engine is."""
    return (
        message.topic, message.state, message.key, message.body, message.headers, message.priority, message.attempt,
        message.max_attempts, message.last_error, message.due if message.state == "scheduled" else None,
        message.expires,
    )  # fmt: skip


def fill(queue: Queue) -> None:
    queue.send_many("order.cancel", [Outgoing({"order": n}, delay=DAY + n, key=f"order:{n}") for n in range(1_500)])
    queue.send("mail", "later", delay="30d", headers={"to": "her"}, priority="low", max_attempts=7, expires_in="2d")
    queue.send("tried", "once", max_attempts=5)
    [delivery] = queue.receive("tried")
    delivery.retry("1h", error="it broke")
    queue.send("dead", {"why": "not"}, key="d", headers={"h": "v"})
    [delivery] = queue.receive("dead")
    delivery.bury("no such order")


@pytest.fixture
def three(folder: Path, redis_url: str, postgres_url: str) -> list[str]:
    return [FIRST, redis_url, postgres_url, SECOND]


def test_messages_move_from_engine_to_engine_as_they_are(bide: Bide, three: list[str]) -> None:
    with Queue(three[0]) as queue:
        fill(queue)
        before = sorted(map(kept, everything(queue)), key=repr)
    for old, new in itertools.pairwise(three):
        ended = bide("move", old, new, "--json")
        assert (ended.code, ended.err) == (0, "")
        told = json.loads(ended.out)
        assert (told["moved"], told["gone"], told["late"], told["held"], told["refused"]) == (1_503, 0, 0, 0, {})
        assert told["topics"]["dead"] == {"from": None, "to": {"pending": 0, "leased": 0, "dead": 1}}
        with Queue(old) as queue:
            assert queue.topics() == []
        with Queue(new) as queue:
            assert sorted(map(kept, everything(queue)), key=repr) == before
    # And the records of attempts that failed came along
    with Queue(three[-1]) as queue:
        [tried] = queue.messages("tried")
        found = queue.get(tried.id)
        assert found is not None
        assert [each.error for each in found.attempts] == ["it broke"]


def test_a_dry_run_shows_what_is_due_first_and_changes_nothing(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        fill(queue)
        before = everything(queue)
    ended = bide("move", FIRST, SECOND, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert "1,503 waiting" in ended.out
    assert len([line for line in ended.out.splitlines() if "  order.cancel" in line or "  tried" in line]) >= 9
    assert not Path("second.db").exists()
    with Queue(FIRST) as queue:
        assert everything(queue) == before


def test_a_topic_without_a_name_is_refused(bide: Bide, folder: Path) -> None:
    """Such as that of a variable that is not set."""
    with Queue(FIRST) as queue:
        queue.send("mail", delay=HOUR)
        ended = bide("move", FIRST, SECOND, "--topic", "mail", "--topic", "")
        assert (ended.code, ended.out) == (2, "")
        assert "--topic is empty: give it a value, or leave it out." in ended.err
        assert queue.stats("mail").scheduled == 1


def test_nothing_follows_a_dry_run(bide: Bide, folder: Path) -> None:
    ended = bide("move", FIRST, SECOND, "--dry-run", "--follow")
    assert ended.code == 2
    assert "Both --follow and --dry-run were given" in ended.err


def test_only_the_topics_that_are_named_move(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        for topic in ("order.cancel", "order.pack", "mail", "other"):
            queue.send(topic, delay=HOUR)
    ended = bide("move", FIRST, SECOND, "--topic", "order.*", "--topic", "mail")
    assert ended.code == 0
    with Queue(FIRST) as queue:
        assert queue.topics() == ["other"]
    with Queue(SECOND) as queue:
        assert queue.topics() == ["mail", "order.cancel", "order.pack"]


def test_what_a_worker_has_is_left_and_told(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        queue.send("mail", "running")
        queue.send("mail", "waiting", delay=HOUR)
        [delivery] = queue.receive("mail")
        ended = bide("move", FIRST, SECOND)
        assert ended.code == 0
        assert "Moved 1 message to 1 topic." in ended.out
        assert "mail: left 1 leased; there 1 pending." in ended.out
        delivery.ack()


def test_a_message_whose_key_is_taken_there_stays_as_it_was(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as old, Queue(SECOND) as new:
        mine = old.send("mail", "old", delay=HOUR, key="k")
        new.send("mail", "new", delay=HOUR, key="k")
        ended = bide("move", FIRST, SECOND)
        assert ended.code == 1
        assert "Left where" in ended.out
        assert "has the key of a message that waits in the queue" in ended.out
        left = old.get(topic="mail", key="k")
        assert left is not None
        assert (left.id, left.due, left.body) == (mine.id, mine.due, "old")
        # And once the other one is gone, it moves
        new.cancel(topic="mail", key="k")
        assert bide("move", FIRST, SECOND).code == 0
        moved = new.get(topic="mail", key="k")
        assert moved is not None
        assert (moved.due, moved.body) == (mine.due, "old")


def test_a_paused_topic_is_paused_there_too(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as old:
        old.send("mail", "due")
        old.pause("mail")
    ended = bide("move", FIRST, SECOND)
    assert ended.code == 0
    assert ended.err.endswith(f"the other queue, too: bide resume mail --url sqlite:///{folder}/second.db\n")
    with Queue(SECOND) as new:
        assert new.receive("mail") == []
        new.resume("mail")
        assert [each.body for each in new.receive("mail")] == ["due"]


def test_a_run_that_is_refused_at_its_begin_leaves_no_note(bide: Bide, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("mail is paused, and the other queue can't pause it.")

    monkeypatch.setattr("bide.cli.move._pause_as_before", refuse)
    with Queue(FIRST) as old:
        old.send("mail", 1, delay=HOUR)
        assert bide("move", FIRST, SECOND).code == 1
        assert old.session.engine().scan(MOVING, "scheduled", 10).messages == []


def test_the_hint_for_a_paused_topic_names_the_other_queue_without_its_password(
    bide: Bide, folder: Path, new_redis: NewRedis
) -> None:
    with Queue(FIRST) as old:
        old.send("mail", delay=HOUR)
        old.pause("mail")
    server = new_redis(requirepass="geheim")
    ended = bide("move", FIRST, f"redis://:geheim@127.0.0.1:{server.port}/0", "--to-namespace", "shop")
    assert (ended.code, "geheim" in ended.err) == (0, False)
    assert f"bide resume mail --url redis://127.0.0.1:{server.port}/0 --namespace shop" in ended.err


def test_a_dry_run_tells_that_the_other_queue_cannot_pause_a_topic(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as old:
        old.send("mail", 1, delay="1h")
        old.pause("mail")
    ended = bide("move", FIRST, "amqp://127.0.0.1:1/", "--dry-run")  # which is not asked
    assert ended.code == 1
    assert "mail is paused, and the other queue can't pause it" in " ".join(ended.err.split())


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_name_that_nothing_has_is_told(bide: Bide, folder: Path, dry: tuple[str, ...]) -> None:
    with Queue(FIRST) as queue:
        queue.send("mail", delay=HOUR)
    ended = bide("move", FIRST, SECOND, "--topic", "mial", "--topic", "order.*", *dry)
    assert (ended.code, ended.err) == (0, "No topic there matches mial or order.*.\n")
    ended = bide("move", FIRST, SECOND, "--from-namespace", "shpo", *dry)
    assert (ended.code, ended.err) == (0, "Nothing waits there. Is the name right?\n")
    assert bide("move", FIRST, SECOND, "--topic", "mial", "--json", *dry).err == ""


def test_a_topic_of_which_workers_have_all_is_no_wrong_name(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        queue.send("mail")
        [delivery] = queue.receive("mail")
        for dry in ((), ("--dry-run",)):
            assert bide("move", FIRST, SECOND, *dry).err == ""
        delivery.ack()


def test_what_waits_for_others_stays(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as old:
        old.task("first", keep="1h")(lambda: None)
        first = old.send("first", {}, delay=HOUR)
        old.send("second", {}, depends_on=[first.id])
    ended = bide("move", FIRST, SECOND, "--topic", "second")
    assert ended.code == 1
    assert "waits for the results of other messages" in ended.out


def test_the_same_queue_is_refused(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        queue.send("mail", delay=HOUR)
    ended = bide("move", FIRST, FIRST)
    assert ended.code == 2
    assert "the same queue" in ended.err
    Path("link.db").symlink_to("first.db")
    ended = bide("move", FIRST, "sqlite:///link.db")
    assert ended.code == 2
    assert "the same queue, by two URLs" in ended.err
    assert bide("move", FIRST, FIRST, "--to-namespace", "other").code == 0


def test_urls_may_be_in_files(bide: Bide, folder: Path) -> None:
    with Queue(FIRST) as queue:
        queue.send("mail", delay=HOUR)
    Path("old.url").write_text(f"{FIRST}\n")
    Path("new.url").write_text(f"{SECOND}\n")
    assert bide("move", "@old.url", "@new.url").code == 0
    ended = bide("move", "@none.url", "@new.url")
    assert ended.code == 1
    assert "none.url" in ended.err

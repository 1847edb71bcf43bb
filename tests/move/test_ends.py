"""The two ends of a move that was stopped: the other queue is gone for good, or somebody wants to go back."""

import json
import re
from pathlib import Path

import pytest

from bide import Outgoing, Queue
from bide.adopt.adoption import Adoption, destination_of
from bide.adopt.queue.messages import Able
from bide.adopt.queue.move import QueueSource
from bide.engines.base import Move, Ref
from bide.queue.schedules.records import MOVING
from tests.cli.running import Bide
from tests.move.meddling import Killed
from tests.move.test_meanwhile import bodies, send

OLD, NEW, OTHER = "sqlite:///old.db", "sqlite:///new.db", "sqlite:///other.db"
NOWHERE = "postgres://bide@127.0.0.1:1/shop?timeout=0.2"


class _Killed(QueueSource):
    def finish(self, *_: object) -> None:
        raise Killed


def stopped(old: Queue, new: Queue, *, to: str | None = None) -> None:
    """A move that was killed when the other queue had all."""
    source = _Killed(old.session.engine(), "old", re.compile(".*"), Able(), to or destination_of(new))
    with pytest.raises(Killed):
        Adoption(source, new).run(lambda _: None, lambda: False)


def some_time_later(old: Queue, minutes: int = 1) -> None:
    """What is noted was noted so long before."""
    engine = old.session.engine()
    for each in engine.scan(MOVING, "scheduled", 1_000).messages:
        engine.reschedule([Move(Ref(id=each.id), at=each.due - 60_000 * minutes)])


def test_a_queue_that_is_gone_gives_back_what_was_on_its_way_there(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 5)
        stopped(old, new, to=destination_of(Queue(NOWHERE)))
        refused = bide("move", OLD, OTHER)
        assert refused.code == 1
        assert "If that queue is gone, add --doubtful give-back" in refused.err
        some_time_later(old)
        ended = bide("move", OLD, OTHER, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 5. Nothing else was moved.\n")
        assert "If postgres://127.0.0.1:1/shop bide is there still, it may have copies of them" in " ".join(ended.err.split())
        again = bide("move", OLD, OTHER, "--doubtful", "give-back")
        assert (again.code, again.out, again.err) == (0, "Given back: 0. Nothing else was moved.\n", "")
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}
        assert bide("move", OLD, OTHER).code == 0
    with Queue(OTHER) as other:
        assert bodies(other) == [0, 1, 2, 3, 4]


def test_a_queue_that_can_not_be_reached_gives_it_back_too(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 5)
        stopped(old, new, to=destination_of(Queue(NOWHERE)))
        some_time_later(old)
        ended = bide("move", OLD, NOWHERE, "--doubtful", "give-back", "--json")
        assert ended.code == 0
        assert "can't be reached" in ended.err
        assert json.loads(ended.out) == {"moved": 0, "given_back": 5}
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}


def test_a_broker_that_can_not_be_reached_gives_it_back_too(bide: Bide, folder: Path) -> None:
    broker = "amqp://bide@127.0.0.1:1/"
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 5)
        stopped(old, new, to=destination_of(Queue(broker)))
        some_time_later(old)
        ended = bide("move", OLD, broker, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 5. Nothing else was moved.\n")
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}


@pytest.mark.server
def test_a_database_that_is_gone_is_told_what_to_name_in_its_place(bide: Bide, folder: Path, postgres_url: str) -> None:
    gone = postgres_url.rpartition("/")[0] + "/gone"
    with Queue(OLD) as old, Queue(NEW) as new:
        send(old, 5)
        stopped(old, new, to=destination_of(Queue(gone)))
        some_time_later(old)
        refused = bide("move", OLD, gone, "--doubtful", "give-back")
        assert refused.code == 1
        assert "If that queue is gone for good, name another one as TO" in " ".join(refused.err.split())
        assert bide("move", OLD, OTHER, "--doubtful", "give-back").out == "Given back: 5. Nothing else was moved.\n"


def test_a_file_that_is_gone_is_not_made_again(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old:
        sent = send(old, 5)
        with Queue(NEW) as new:
            stopped(old, new)
        some_time_later(old)
        for each in folder.glob("new.db*"):
            each.unlink()
        ended = bide("move", OLD, NEW, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 5. Nothing else was moved.\n")
        assert not (folder / "new.db").exists()
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}


@pytest.mark.server
def test_tables_that_are_gone_are_not_made_again(bide: Bide, folder: Path, postgres_url: str) -> None:
    url = postgres_url + ("&" if "?" in postgres_url else "?") + "namespace=gone"
    with Queue(OLD) as old, Queue(NEW) as new:
        send(old, 5)
        stopped(old, new, to=destination_of(Queue(url)))
        some_time_later(old)
        refused = bide("move", OLD, url, "--doubtful", "give-back")
        assert refused.code == 1
        assert "If that queue is gone for good, name another one as TO" in " ".join(refused.err.split())
        assert bide("stats", "--url", url).code == 1


def test_copies_of_what_was_changed_or_given_back_before_are_told(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 2)
        stopped(old, new, to=destination_of(Queue(NOWHERE)))
        some_time_later(old)
        old.cancel(sent[0])
        old.reschedule(sent[1], delay="2h")
        ended = bide("move", OLD, OTHER, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 0. Nothing else was moved.\n")
        assert "it may have copies of what was on its way" in " ".join(ended.err.split())
        assert bide("move", OLD, OTHER, "--doubtful", "give-back").err == ""


@pytest.mark.parametrize("to", ["sqlite", "redis", "postgres"])
def test_a_queue_that_is_there_and_knows_no_more_what_it_got_has_it_given_back(
    bide: Bide, folder: Path, to: str, request: pytest.FixtureRequest
) -> None:
    url = NEW if to == "sqlite" else request.getfixturevalue(f"{to}_url")
    with Queue(OLD) as old, Queue(url) as new:
        sent = [old.send("mail", n, delay=3_600 + n, key=f"k{n}") for n in range(5)]
        stopped(old, new)
        refused = bide("move", OLD, url, "--doubtful", "give-back")
        assert (refused.code, refused.out) == (1, "")
        assert "nothing is in doubt: leave out --doubtful" in " ".join(refused.err.split())
        some_time_later(old, 10)
        looked = bide("move", OLD, url, "--dry-run").out
        assert "10 minutes ago, so the next run stops" in looked
        assert "Left at the source" not in looked
        asked = bide("move", OLD, url)
        assert asked.code == 1
        assert "The first is one of topic mail, with the key 'k0', due at " in " ".join(asked.err.split())
        sent.append(old.send("mail", "another", delay="1h"))
        ended = bide("move", OLD, url, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 5. Nothing else was moved.\n")
        assert "it may have copies of them" in " ".join(ended.err.split())
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}


def test_a_dry_run_after_a_kill_shows_what_somebody_has_rescheduled_since(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 3)
        stopped(old, new)
        old.reschedule(sent[2], delay="5m")
        looked = bide("move", OLD, NEW, "--dry-run").out
    assert "2 messages of a run that was stopped: the next run begins with them" in looked
    assert [line.split()[-3:-1] for line in looked.splitlines() if line.startswith("  ")] == [["mail", "k2"]]


@pytest.mark.server
def test_a_broker_that_never_knows_what_it_got_has_it_given_back_at_any_time(
    bide: Bide, folder: Path, rabbitmq_url: str
) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        sent = send(old, 5)
        stopped(old, new, to=destination_of(Queue(rabbitmq_url)))
        with Queue(rabbitmq_url) as broker:
            broker.send("other", 1)  # it is there
        some_time_later(old, 10)
        assert "5 messages of a run that was stopped: the next run begins" in bide("move", OLD, rabbitmq_url, "--dry-run").out
        ended = bide("move", OLD, rabbitmq_url, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (0, "Given back: 5. Nothing else was moved.\n")
        assert "it may have copies of them" in " ".join(ended.err.split())
        assert {each.id: each.due for each in old.messages("mail")} == {each.id: each.due for each in sent}


@pytest.mark.parametrize("more", [("--dry-run",), ("--topic", "mail"), ("--follow",)])
def test_giving_back_has_no_other_options(bide: Bide, folder: Path, more: tuple[str, ...]) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        send(old, 5)
        stopped(old, new, to=destination_of(Queue(NOWHERE)))
        some_time_later(old)
        ended = bide("move", OLD, OTHER, "--doubtful", "give-back", *more)
        assert ended.code == 2
        assert "leave" in ended.err
        assert len(new.messages("mail")) == 5


def test_nothing_is_given_back_while_a_run_may_go_on(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        send(old, 5)
        stopped(old, new, to=destination_of(Queue(NOWHERE)))
        ended = bide("move", OLD, OTHER, "--doubtful", "give-back")
        assert (ended.code, ended.out) == (1, "")
        assert "may go on. End it, wait for a minute" in " ".join(ended.err.split())


def test_nothing_is_given_back_from_a_queue_that_can_not_list(bide: Bide, folder: Path) -> None:
    ended = bide("move", "amqp://127.0.0.1:1/", NEW, "--doubtful", "give-back")
    assert ended.code == 1
    assert "can't list what waits there" in ended.err


def test_the_way_back_waits_until_a_move_that_was_stopped_has_ended(bide: Bide, folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        send(old, 5)
        stopped(old, new)
        refused = bide("move", NEW, OLD)
        assert refused.code == 1
        assert "A move from TO to FROM was stopped on its way, or goes on" in refused.err
        assert bide("move", OLD, NEW).code == 0
        assert bide("move", NEW, OLD).code == 0
        assert bodies(old) == [0, 1, 2, 3, 4]
        assert bodies(new) == []


def test_what_is_larger_than_the_other_queue_takes_is_left_and_told(folder: Path) -> None:
    with Queue(OLD) as old, Queue(NEW) as new:
        old.send("mail", "x" * 200, delay="1h")
        old.send("mail", "small", delay="1h")
        source = QueueSource(old.session.engine(), "old", re.compile(".*"), Able(largest=100), "new")
        adoption = Adoption(source, new)
        adoption.run(lambda _: None, lambda: False)
        source.close()
        assert dict(adoption.refused) == {"is larger than the other queue takes": 1}
        assert (bodies(old), bodies(new)) == (["x" * 200], ["small"])


@pytest.mark.server
def test_counts_that_are_an_estimate_are_told_so(bide: Bide, folder: Path, postgres_url: str) -> None:
    with Queue(OLD) as old:
        for _ in range(11):
            old.send_many("mail", [Outgoing(n, delay="1h") for n in range(1_000)])
    moved = bide("move", OLD, postgres_url)
    assert moved.code == 0
    assert "there about 1" in moved.out
    looked = bide("move", postgres_url, OTHER, "--dry-run")
    assert "nobody can tell how many wait." in looked.out
    told = json.loads(bide("move", postgres_url, OTHER, "--json").out)
    assert told["moved"] == 11_000
    assert told["topics"]["mail"]["to"] == {"pending": 11_000, "leased": 0, "dead": 0}

"""`bide dead`, `requeue`, `purge` and `cancel` for many messages: those of a topic or of several, by error, key and age."""

import itertools
import json
import re
from typing import Any

import pytest

from bide import Queue
from bide.cli import sweep
from tests.cli.running import AtTerminal, Bide, buried


def bury(queue: Queue, topic: str, key: str, error: str) -> str:
    queue.send(topic, key, key=key, max_attempts=2)
    [taken] = queue.receive(topic)
    taken.bury(error)
    return taken.id


@pytest.fixture
def dead(queue: Queue) -> dict[str, str]:
    """Ids by key: two topics with dead letters of two kinds, and a scheduled message."""
    found = {key: bury(queue, "order.pack", key, "TimeoutError: shop") for key in ("order:1", "order:2", "cart:3")}
    found["order:4"] = bury(queue, "order.pack", "order:4", "KeyError: 'sku'")
    found["mail:5"] = bury(queue, "mail", "mail:5", "TimeoutError: smtp")
    queue.send("order.cancel", 6, key="order:6", delay="1h")
    return found


def dead_keys(queue: Queue, topic: str = "order.pack") -> list[str | None]:
    return [each.key for each in queue.messages(topic, state="dead")]


# dead, list


def test_dead_letters_of_all_topics_are_listed_with_their_topic(bide: Bide, dead: dict[str, str]) -> None:
    head, *rows = bide("dead").out.splitlines()
    assert head.split() == ["id", "topic", "was", "due", "at", "attempts", "key", "last", "error"]
    assert rows[0].split()[:2] == [dead["mail:5"], "mail"]
    assert {row.split()[1] for row in rows[1:]} == {"order.pack"}
    assert len(rows) == 5
    only = bide("dead", "order.*", "--error", "Timeout", "--key", "order:*", "--json").out.splitlines()
    assert [json.loads(line)["key"] for line in only] == ["order:1", "order:2"]
    assert bide("dead", "--older", "1h") == (0, "", "The queue has no dead letters that match.\n")
    assert "There are more" in bide("dead", "--limit", "1").err
    assert len(bide("dead", "--limit", "5").out.splitlines()) == 6


def test_messages_of_all_topics_are_listed_whole(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    queue.send_many("bulk", range(450))
    told = [json.loads(line) for line in bide("list", "--all", "--json").out.splitlines()]
    assert {each["id"] for each in told} >= set(dead.values())
    assert len({each["id"] for each in told}) == len(told) == 456
    assert [each["topic"] for each in told] == sorted(each["topic"] for each in told)
    some = bide("list", "--key", "order:*", "--limit", "2", "--json")
    assert [json.loads(line)["key"] for line in some.out.splitlines()] == ["order:6", "order:1"]
    assert "There may be more" in some.err
    assert bide("list", "bulk", "--limit", "450").err == ""
    assert bide("list", "--after", "x").code == 2
    assert bide("list", "--state", "leased").err == "The queue has no leased messages.\n"


# requeue


def test_dead_letters_are_requeued_by_error_and_key(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    ended = bide("requeue", "order.pack", "--all", "--error", "Timeout", "--key", "order:*")
    assert ended == (0, "Requeued 2 of 2 dead letters of order.pack.\n", "")
    assert dead_keys(queue) == ["cart:3", "order:4"]
    none = bide("requeue", "order.pack", "--all", "--key", "order:1")
    assert none.out == "order.pack has no dead letters that match.\n"
    every = json.loads(bide("requeue", "*", "--all", "--younger", "1h", "--json").out)
    assert every == {
        "topic": "*",
        "requeued": 3,
        "keyless": 0,
        "asked": 3,
        "gone": 0,
        "missing": [],
        "refused": [],
        "unconfirmed": None,
    }
    assert queue.stats().dead == 0


def test_requeued_letters_fall_due_evenly_over_a_time(bide: Bide, queue: Queue) -> None:
    buried(queue, "t", 600)
    assert bide("requeue", "t", "--all", "--error", "order", "--delay", "1h", "--spread", "10m").code == 0
    dues = [each.due for each in queue.messages("t", limit=1_000)]
    gaps = {second - first for first, second in itertools.pairwise(dues[:200])}
    assert gaps == {1_000}
    assert 598_000 <= dues[-1] - dues[0] <= 610_000


def test_a_dry_run_shows_which_and_changes_nothing(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    before = queue.stats()
    shown = bide("requeue", "order.pack", "--all", "--error", "Timeout", "--dry-run").out.splitlines()
    assert [line.split()[0] for line in shown[1:-1]] == [dead[key] for key in ("order:1", "order:2", "cart:3")]
    assert shown[-1] == "requeue would change 3 dead letters of order.pack. Nothing was changed."
    told = json.loads(bide("purge", "*", "--state", "dead", "--dry-run", "--json").out)
    assert (told["topic"], told["dry_run"], told["found"], len(told["first"])) == ("*", True, 5, 5)
    one = bide("purge", "order.pack", dead["order:4"], dead["mail:5"], "--dry-run").out.splitlines()
    assert (len(one), one[1].split()[0]) == (3, dead["order:4"])
    assert "1 pending message of order.cancel" in bide("cancel", "order.cancel", "--all", "--dry-run").out
    assert bide("cancel", "nothing", "--all", "--dry-run").out == "nothing has no pending messages.\n"
    assert queue.stats().topics.keys() == before.topics.keys()
    assert (queue.stats().dead, queue.stats().scheduled) == (before.dead, before.scheduled)


def test_what_moved_meanwhile_is_told(bide: Bide, queue: Queue, dead: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    work = sweep.work

    def late(meant: Any, what: str, steps: Any) -> Any:
        engine = meant.queue.session.engine()
        scan = engine.scan

        def and_then(*args: Any) -> Any:
            page = scan(*args)
            queue.purge("order.pack", state="dead", ids=[dead["order:1"]])
            return page

        monkeypatch.setattr(engine, "scan", and_then)
        return work(meant, what, steps)

    monkeypatch.setattr("bide.cli.sweep.work", late)
    ended = bide("requeue", "order.pack", "--all", "--key", "order:*")
    assert ended.out == "Requeued 2 of 3 dead letters of order.pack. 1 message had moved or ended before.\n"


# purge


def test_one_dead_letter_is_deleted_by_its_id(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    ended = bide("purge", "order.pack", dead["order:2"], "--yes")
    assert ended == (0, "Deleted 1 dead letter of order.pack.\n", "")
    again = bide("purge", "order.pack", dead["order:2"], dead["mail:5"], dead["cart:3"], "--yes", "--json")
    assert again.code == 4
    assert json.loads(again.out) == {
        "topic": "order.pack",
        "purged": 1,
        "state": "dead",
        "asked": 3,
        "gone": 2,
        "missing": [],
        "refused": [],
        "unconfirmed": None,
    }
    assert dead_keys(queue) == ["order:1", "order:4"]
    assert dead_keys(queue, "mail") == ["mail:5"]


def test_messages_of_one_state_are_deleted_by_error_and_key(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    assert bide("purge", "order.pack", "--state", "dead", "--error", "KeyError", "--yes").code == 0
    assert dead_keys(queue) == ["order:1", "order:2", "cart:3"]
    queue.send("order.cancel", 7, key="cart:7", delay="1h")
    gone = bide("purge", "order.*", "--state", "scheduled", "--key", "order:*", "--yes")
    assert gone.out == "Deleted 1 scheduled message of order.*.\n"
    assert [each.key for each in queue.messages("order.cancel")] == ["cart:7"]


def test_purge_asks_with_the_count_of_those_that_match(at_terminal: AtTerminal, queue: Queue, dead: dict[str, str]) -> None:
    terminal = at_terminal("purge", "order.pack", "--state", "dead", "--error", "Timeout")
    terminal.until("Permanently delete 3 dead letters of order.pack? [y/N] ")
    terminal.type("y\n")
    assert terminal.end().code == 0
    assert dead_keys(queue) == ["order:4"]


# cancel


def test_pending_messages_are_cancelled_by_key(bide: Bide, queue: Queue, dead: dict[str, str]) -> None:
    for number in range(250):
        queue.send("t", number, key=f"order:{number}", delay=f"{number}s")
    assert bide("cancel", "t", "--all", "--key", "order:1*").code == 2
    ended = bide("cancel", "t", "--all", "--key", "order:1*", "--yes")
    assert ended == (0, "Cancelled 111 messages of t.\n", "")
    told = json.loads(bide("cancel", "t", "--all", "--yes", "--json").out)
    assert told == {
        "topic": "t",
        "cancelled": 139,
        "running": 0,
        "asked": 139,
        "gone": 0,
        "missing": [],
        "refused": [],
        "unconfirmed": None,
    }
    assert bide("cancel", "t", "--all", "--yes").out == "t has no pending messages.\n"
    assert bide("cancel", "order.cancel", "--key", "order:6").out.startswith("CANCELLED")
    assert queue.stats().dead == 5


def test_cancelling_many_moves_a_bar_and_asks(at_terminal: AtTerminal, queue: Queue) -> None:
    queue.send_many("t", range(1_000))
    terminal = at_terminal("cancel", "t", "--all")
    terminal.until("Cancel 1,000 pending messages of t? [y/N] ")
    terminal.type("y\n")
    ended = terminal.end()
    assert "cancelling t" in ended.err
    assert re.search(r"Cancelled 1,000 messages of t\.", ended.err)
    assert queue.stats("t").ready == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["requeue", "t", "id", "--error", "x"], ["requeue", "t", "--error", "x"], ["requeue", "t", "--all", "--spread", "soon"],
        ["requeue", "t*", "id"], ["purge", "t", "--yes"], ["purge", "t", "id", "--state", "ready", "--yes"],
        ["purge", "t", "id", "--key", "k", "--yes"], ["purge", "t", "--state", "dead", "--older", "x", "--yes"],
        ["cancel", "id", "--dry-run"], ["cancel", "id", "--yes"], ["cancel", "t", "--error", "x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_does_not_say_which_messages_is_refused(bide: Bide, queue: Queue, wrong: list[str]) -> None:
    buried(queue, "t")
    ended = bide(*wrong)
    assert (ended.code, ended.out) == (2, "")
    assert queue.stats("t").dead == 1

"""`bide doctor` of a RabbitMQ queue, and `--remove`, as a user calls them."""

import json

import pytest

from bide import Queue
from bide.engines.rabbitmq.doctor import probe
from tests.cli.running import AtTerminal, Bide
from tests.rabbitmq.examined import Host
from tests.servers.rabbitmq import RabbitServer


@pytest.fixture
def host(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Host:
    return Host(rabbitmq_server, rabbitmq_url)


def fill(host: Host) -> None:
    """Two delayed messages, two that are due, and a dead letter."""
    with Queue(host.url) as queue:
        queue.send_many("mail", [1, 2, 3])
        for body in (4, 5):
            queue.send("pack", body, delay="1h")
        [delivery] = queue.receive("mail", wait=20)
        delivery.bury("no such order")


def test_findings_are_json_for_scripts(bide: Bide, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SOON", 0.05)
    told = bide("doctor", "--url", host.url, "--json")
    assert told.code == 0
    found = json.loads(told.out)
    assert {"name", "value", "level", "advice", "where"} == set(found[0])
    assert "dead-lettering" in {each["name"] for each in found}
    assert "guest:guest" not in told.out + told.err


def test_remove_takes_away_all_that_bide_has_made_and_nothing_else(bide: Bide, host: Host) -> None:
    fill(host)
    host.make_queue("bidet", {})
    host.make_queue("bide:mine", {})
    told = bide("doctor", "--url", host.url, "--remove", "--yes")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("Removed 63 queues and 34 exchanges of the namespace bide, with ")
    assert (sorted(host.queues()), host.exchanges()) == (["bide:mine", "bidet"], [])
    again = bide("doctor", "--url", host.url, "--remove", "--yes")
    assert again.out.startswith("There is nothing of the namespace bide at amqp://")


def test_a_queue_that_was_removed_can_be_used_anew(bide: Bide, host: Host) -> None:
    fill(host)
    assert bide("doctor", "--url", host.url, "--remove", "--yes", "--json").code == 0
    with Queue(host.url) as queue:
        queue.send("mail", "new")
        assert [each.body for each in queue.receive("mail", wait=20)] == ["new"]


def test_remove_leaves_other_namespaces_alone(bide: Bide, host: Host) -> None:
    fill(host)
    before = host.queues(), host.exchanges()
    told = bide("doctor", "--url", host.url, "--namespace", "shop", "--remove", "--yes", "--json")
    assert (told.code, json.loads(told.out)) == (0, {"queues": 0, "exchanges": 0, "messages": 0})
    assert (host.queues(), host.exchanges()) == before


def test_a_removal_that_was_cut_short_is_ended_by_the_next_one(bide: Bide, host: Host) -> None:
    fill(host)
    for exchange in ("bide:made.1", "bide:enter", "bide:lost"):
        host.delete("exchanges", exchange)
    host.delete("queues", "bide:wait:s3")
    assert bide("doctor", "--url", host.url, "--remove", "--yes").code == 0
    assert (host.queues(), host.exchanges()) == ([], [])


def test_remove_asks_and_says_what_would_be_lost(at_terminal: AtTerminal, host: Host) -> None:
    fill(host)
    host.until("bide:wait:s11", lambda each: each.get("messages") == 2)
    host.until("bide:topic:mail", lambda each: each.get("messages") == 2)
    url = f"{host.url}?management={host.management}"
    terminal = at_terminal("doctor", "--url", url, "--remove")
    terminal.until("[y/N]")
    terminal.type("n\n")
    ended = terminal.end()
    assert ended.code == 1
    said = " ".join((ended.out + ended.err).split())
    assert "2 delayed messages, the topic mail with 2 ready and 1 dead letter, the topic pack" in said
    assert "Nothing was changed." in said
    assert "guest:guest" not in said
    assert "bide:made.1" in host.exchanges()


def test_remove_does_not_go_on_without_an_answer(bide: Bide, host: Host) -> None:
    told = bide("doctor", "--url", host.url, "--remove")
    assert (told.code, "--yes" in told.err) == (2, True)


@pytest.mark.parametrize("url", ["sqlite:///bide.db", "memory://"])
def test_remove_is_refused_for_other_engines(bide: Bide, url: str) -> None:
    told = bide("doctor", "--url", url, "--remove", "--yes")
    assert (told.code, "--remove works only with RabbitMQ" in told.err) == (1, True)


@pytest.mark.parametrize("options", [("--remove", "--fix"), ("--remove", "--acl"), ("--yes",)])
def test_options_that_do_not_go_together_are_refused(bide: Bide, options: tuple[str, ...]) -> None:
    assert bide("doctor", "--url", "amqp://127.0.0.1:1/", *options).code == 2


def test_fix_makes_again_what_is_missing(bide: Bide, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SOON", 0.05)
    fill(host)
    host.delete("queues", "bide:wait:s3")
    assert bide("doctor", "--url", host.url).code == 1
    told = bide("doctor", "--url", host.url, "--fix")
    assert (told.code, "1 queue and 0 exchanges that were missing" in told.out) == (0, True)
    assert "bide:wait:s3" in host.queues()

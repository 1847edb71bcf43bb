"""What `bide doctor` says of a RabbitMQ broker."""

import re
import shlex

import pytest

from bide import Queue
from bide.engines.rabbitmq.doctor import probe
from bide.engines.rabbitmq.ladder import QueueNames
from tests.rabbitmq.examined import Host, examined, source_of, told
from tests.servers.rabbitmq import RabbitServer

NAMES = QueueNames("bide")
AMQP_DOES_NOT_TELL = {"nodes", "stream_queue", "policies", "bindings", "replicas", "waiting"}


@pytest.fixture
def host(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Host:
    return Host(rabbitmq_server, rabbitmq_url)


SOON = probe.SOON


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon the broker tries again is looked at in two tests only: it takes seconds."""
    monkeypatch.setattr(probe, "SOON", 0.05)


def test_a_new_virtual_host_is_looked_at_and_left_alone(host: Host) -> None:
    found = host.examined()
    assert found["layout"].value == "nothing is there yet: it is made on first use"
    assert found["dead-lettering"].value == "at least once; tried"
    assert told(found, "bad") == {}
    assert (host.queues(), host.exchanges()) == ([], [])


def test_a_queue_at_work_is_well(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1, delay="1h")
        queue.send("mail", 2, delay="1h")
        before = host.queues(), host.exchanges()
        assert set(before[0]) == {name for name, _ in NAMES.queues()} | {NAMES.topic("mail")}
        host.until(NAMES.topic("mail"), lambda each: "messages" in each)
        found = host.examined()
    assert set(told(found, "warn")) == {"after a restart"}  # the tests' broker is as its package makes it
    assert told(found, "bad") == {}
    assert found["broker"].value.startswith("RabbitMQ ")
    assert found["nodes"].value.startswith("1 of 1 run")
    assert found["layout"].value == "all 93 exchanges and queues are there"
    assert found["bindings"].value.endswith(" are there")
    assert found["rights"].value == "all that a worker needs"
    assert found["policies"].value == "none that changes what our queues do"
    assert found["alarms"].value == "none: the broker takes messages"
    assert "within" in found["clock"].value
    assert found["topic mail"].value == "0 ready, 0 leased, 0 dead, 0 receivers"
    assert found["oldest overdue"].value == "none: no topic has ready messages"
    assert (host.queues(), host.exchanges()) == before


def test_the_command_that_it_names_shows_since_when_the_oldest_message_is_due(
    host: Host, rabbitmq_server: RabbitServer
) -> None:
    with Queue(host.url) as queue:
        queue.send("other")
        first, _ = queue.send_many("mail", [1, 2])
        asked = examined(host.url)["oldest overdue"].value
        command = re.search(r"rabbitmq-queues (peek --vhost \S+ \S+ 1);", asked)
        assert command is not None, asked
        said = rabbitmq_server.ctl(*shlex.split(command[1]), program="rabbitmq-queues")
        assert f'"due":{first.due}' in said
        assert [each.attempt for each in queue.receive("mail", limit=2)] == [1, 1]


def test_without_the_management_api_it_says_how_to_find_out(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1, delay="1h")
        found = examined(host.url)
    assert {name for name, each in found.items() if "rabbitmqctl" in each.value} == AMQP_DOES_NOT_TELL | {"consumer_timeout"}
    assert "management=" in found["management"].value
    assert found["waiting"].value.startswith("1 message: 1 in the queue of ")
    assert told(found, "bad") == {}


def test_a_topic_that_nobody_receives_is_named_with_what_it_holds(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send_many("mail", [1, 2, 3])
        queue.send("other", 1)
        topic = NAMES.topic("mail")
        without = examined(host.url)["topic mail"]
        assert (without.level, without.value) == ("warn", "3 ready, 0 dead, 0 receivers")
        host.until(topic, lambda each: each.get("messages_ready") == 3)
        host.until(NAMES.topic("other"), lambda each: each.get("messages_ready") == 1)
        found = host.examined()
        assert (found["topic mail"].level, found["topic mail"].value) == ("warn", "3 ready, 0 leased, 0 dead, 0 receivers")
        assert found["topic mail"].advice == "nobody receives it: is a worker running, with room for more?"
        assert found["topic other"].value.startswith("1 ready")
        assert [name for name in found if name.startswith("topic ")] == ["topic mail", "topic other"]  # the longest first
        taken = queue.receive("mail", limit=3, wait=20, linger=5)
        assert len(taken) == 3
        taken[0].bury("no such order")
        host.until(NAMES.dead("mail"), lambda each: each.get("messages") == 1)
        counts = ("messages_ready", "messages_unacknowledged")
        host.until(topic, lambda each: not queue.receive("mail") and [each.get(name) for name in counts] == [0, 2])
        at_work = host.examined()["topic mail"]
    assert (at_work.level, "0 ready, 2 leased, 1 dead" in at_work.value) == ("ok", True)


def test_what_somebody_has_removed_is_missed_and_made_again(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1, delay="1h")
    host.delete("queues", "bide:wait:s5")
    host.delete("exchanges", "bide:after:s6")
    host.unbind("bide:after:s10", "bide:wait:s3")
    host.unbind("bide:topics", "bide:topic:mail")
    found = host.examined()
    assert (found["layout"].level, found["layout"].value) == ("bad", "2 of 93 are missing: bide:after:s6, bide:wait:s5")
    assert found["bindings"].level == "bad"
    for each in ("bide:after:s10 to bide:wait:s3", "bide:topics to bide:topic:mail"):
        assert each in found["bindings"].value or "more" in found["bindings"].value
    mended = source_of(host.url).mend()
    assert [each.value for each in mended] == ["1 queue and 1 exchange that were missing, and all bindings"]
    found = host.examined()
    assert (found["layout"].level, found["bindings"].level) == ("ok", "ok")


def test_a_namespace_that_is_not_there_is_not_made_by_mending(host: Host) -> None:
    assert source_of(host.url).mend() == []
    assert (host.queues(), host.exchanges()) == ([], [])


def test_a_topic_that_the_index_has_lost_is_found_and_listed_again(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1)
    host.delete("queues", "bide:index")
    source_of(host.url).mend()
    found = host.examined()
    assert (found["topics without an entry"].level, found["topics without an entry"].value) == ("warn", "1: mail")
    source_of(host.url, management=host.management).mend()
    assert "topics without an entry" not in host.examined()


def test_a_topic_whose_queue_was_removed_is_named(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1)
    host.delete("queues", "bide:topic:mail")
    found = host.examined()["topics without a queue"]
    assert (found.level, found.value) == ("warn", "1: mail")


def test_messages_that_found_no_queue_are_counted(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.receive("mail")  # makes its queue
        host.delete("queues", "bide:topic:mail")
        queue.send("mail", 1, delay=0.2)
        host.until("bide:lost", lambda each: each.get("messages") == 1)
    for found in (examined(host.url), host.examined()):
        assert (found["lost"].level, found["lost"].value) == ("warn", "1 message found no queue")


def test_messages_that_the_broker_does_not_pass_on_are_counted(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1)
        host.delete("exchanges", "bide:after:s0")
        queue.send("mail", 2, delay=1.2)
        host.until("bide:wait:s0", lambda each: (each.get("messages_dlx"), each.get("messages")) == (1, 1))
        found = host.examined()
    assert (found["held"].level, found["held"].value) == (
        "warn",
        "1 message, not passed on when it was time: 1 in bide:wait:s0",
    )
    assert found["waiting"].value == "1 message: 1 in the queue of 1s"


def test_a_queue_that_somebody_else_has_made_is_named(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1, delay="1h")
    host.delete("queues", "bide:wait:s7")
    host.make_queue("bide:wait:s7", {"x-queue-type": "quorum"})
    found = host.examined()["arguments"]
    assert (found.level, found.value) == ("bad", "not those of bide: bide:wait:s7")


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_each_policy_that_changes_what_our_queues_do_is_named(host: Host, kind: str) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1)
        queue.send("mail", 1, delay="1h")
    host.set_policy("^bide:(topic|wait:s)", kind=kind, message_ttl=5_000, expires=900_000, max_length=10)
    host.until("bide:topic:mail", lambda each: (each.get("effective_policy_definition") or {}).get("expires") == 900_000)
    host.until("bide:wait:s0", lambda each: (each.get("effective_policy_definition") or {}).get("expires") == 900_000)
    found = [each for each in source_of(host.url, management=host.management).examine() if each.name == "policy ours"]
    assert {each.level for each in found} == {"bad"}
    said = {each.value for each in found}
    assert "sets message-ttl to 5000 for bide:topic:mail" in said
    assert "sets expires to 900000 for bide:topic:mail" in said
    assert "sets max-length to 10 for bide:topic:mail" in said
    shortened = [each for each in said if each.startswith("sets message-ttl to 5000 for 25 queues")]
    assert shortened, said  # those of 8 s and longer: the others expire before the policy says so


def test_a_policy_that_lets_the_broker_lose_messages_is_found_out_by_trying(host: Host) -> None:
    host.set_policy("^bide:wait", overflow="drop-head")
    found = examined(host.url)["dead-lettering"]
    assert (found.level, found.value) == ("bad", "at most once")
    assert "rabbitmqctl list_policies" in found.advice


def test_each_right_that_is_missing_is_named(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1)
    modest = host.with_user("modest", configure="^amq.gen", write="", read=".*")
    found = examined(modest)["rights"]
    assert found.level == "bad"
    assert "access to queue 'bide:doctor:…'" in found.value
    assert "access to exchange 'amq.default'" in found.value
    # When the operator gives what the doctor has named
    command = found.advice.partition("rabbitmqctl ")[2]
    verb, *_, user, configure, write, read = shlex.split(command)
    assert (verb, user, host.name in command) == ("set_permissions", f"modest-{host.name}", True)
    worker = host.with_user("worker", configure=configure, write=write, read=read)
    assert examined(worker)["rights"].value == "all that a worker needs"
    with Queue(worker) as queue:
        queue.send("mail", 2)
        assert [each.body for each in queue.receive("mail", limit=2, wait=20)]

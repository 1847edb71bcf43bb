"""What `bide doctor` says of a RabbitMQ broker."""

import pytest

from bide import Queue
from bide.engines.rabbitmq.doctor import probe
from bide.engines.rabbitmq.ladder import Names
from tests.rabbitmq.examined import Host, examined, told
from tests.servers.rabbitmq import RabbitServer

NAMES = Names("bide")
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
        host.until(NAMES.topic("mail"), lambda each: "messages" in each)
        found = host.examined()
    assert set(told(found, "warn")) == {"after a restart"}  # the tests' broker is as its package makes it
    assert told(found, "bad") == {}
    assert found["broker"].value.startswith("RabbitMQ ")
    assert found["nodes"].value.startswith("1 of 1 run")
    assert found["layout"].value == "all 93 exchanges and queues are there"
    assert found["bindings"].value == "all 1324 are there"
    assert found["rights"].value == "all that a worker needs"
    assert found["policies"].value == "none that changes what our queues do"
    assert found["alarms"].value == "none"
    assert "within" in found["clock"].value
    assert found["topic mail"].value == "0 ready, 0 leased, 0 dead, 0 receivers"
    assert (host.queues(), host.exchanges()) == before


def test_without_the_management_api_it_says_how_to_find_out(host: Host) -> None:
    with Queue(host.url) as queue:
        queue.send("mail", 1, delay="1h")
        found = examined(host.url)
    assert {name for name, each in found.items() if "rabbitmqctl" in each.value} == AMQP_DOES_NOT_TELL | {"consumer_timeout"}
    assert "management=" in found["management"].value
    assert found["waiting"].value.startswith("1 message: 1 for ")
    assert told(found, "bad") == {}

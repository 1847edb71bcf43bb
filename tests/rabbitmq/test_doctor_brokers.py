"""What `bide doctor` says of RabbitMQ brokers that are away, full, old or set otherwise, and of their management API."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from bide import Queue
from bide.engines.base import Settings
from bide.engines.rabbitmq.doctor import broker, probe
from bide.engines.rabbitmq.doctor.look import Management
from bide.engines.rabbitmq.doctor.probe import Probed
from bide.engines.rabbitmq.doctor.seen import BrokerSeen
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import read
from tests.rabbitmq.examined import Host, examined, told
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit

SOON = probe.SOON


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """How soon the broker tries again is looked at in one test only: it takes seconds."""
    monkeypatch.setattr(probe, "SOON", 0.05)


@pytest.fixture
def host(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Host:
    return Host(rabbitmq_server, rabbitmq_url)


def seen(*, probed: Probed | None = None, **properties: str) -> BrokerSeen:
    return BrokerSeen(read(Settings(url="amqp://")), QueueNames("bide"), properties, True, {}, {}, [], {}, probed or Probed())


def test_a_broker_that_is_away_is_told_of_without_the_password() -> None:
    found = examined("amqp://me:s3cret@127.0.0.1:1/shop")
    assert (found["state"].level, found["state"].advice) == ("bad", "start the broker")
    assert "s3cret" not in str(found)


def test_a_refused_login_is_not_taken_for_a_broker_that_is_away(rabbitmq_url: str) -> None:
    found = examined(rabbitmq_url.replace("guest:guest", "guest:s3cret"))
    assert (found["state"].level, found["state"].advice) == ("bad", "change the URL, or the user's rights on the broker")
    assert "s3cret" not in str(found)


@pytest.mark.slow
def test_a_broker_without_memory_takes_no_messages(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq(management=True)
    with Queue(server.url) as queue:
        queue.send("mail", 1, delay="1h")
    server.ctl("set_vm_memory_high_watermark", "absolute", "1MiB")
    found = examined(server.url, timeout="1")
    assert (found["alarms"].level, "rabbitmq-diagnostics alarms" in found["alarms"].value) == ("bad", True)
    assert "rights" not in found  # they could not be tried
    give_up = time.monotonic() + 30
    while not server.management.get("nodes")[0].get("mem_alarm"):
        assert time.monotonic() < give_up, "the management API never told of it"
        time.sleep(0.1)
    found = examined(server.url, management=server.management_url, timeout="1")
    assert (found["alarms"].level, found["alarms"].value) == ("bad", f"memory of {server.node}")
    server.ctl("set_vm_memory_high_watermark", "0.4")
    assert examined(server.url)["alarms"].level == "ok"


def test_a_broker_without_the_feature_flag_does_not_keep_messages(new_rabbitmq: NewRabbit) -> None:
    with WithoutFlags(management=True) as server:
        found = examined(server.url, management=server.management_url)
    assert (found["stream_queue"].level, found["stream_queue"].value) == ("bad", "disabled")
    assert found["stream_queue"].advice.endswith("rabbitmqctl enable_feature_flag stream_queue")
    assert (found["dead-lettering"].level, found["dead-lettering"].value) == ("bad", "at most once")


class WithoutFlags(RabbitServer):
    """A broker as after an update from a release that did not know of streams."""

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"RABBITMQ_FEATURE_FLAGS": "quorum_queue,implicit_default_bindings"}


def test_how_late_messages_are_after_a_restart_is_found_out_by_trying(
    new_rabbitmq: NewRabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "SOON", SOON)
    tuned = examined(new_rabbitmq(tuned=True).url)["after a restart"]
    assert (tuned.level, "late by 5 to 10 s" in tuned.value) == ("ok", True)


def test_a_broker_as_its_package_makes_it_is_late_after_a_restart(rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SOON", SOON)
    found = examined(rabbitmq_url)["after a restart"]
    assert (found.level, "up to 180 s" in found.advice, "advanced.config" in found.advice) == ("warn", True, True)


@pytest.mark.parametrize(
    ("product", "version", "level"),
    [
        ("RabbitMQ", "3.9.13", "bad"),
        ("RabbitMQ", "3.10.0", "ok"),
        ("RabbitMQ", "4.1.0-rc.1", "ok"),
        ("LavinMQ", "2.1.0", "bad"),
    ],
)
def test_a_broker_that_can_not_keep_messages_is_refused(product: str, version: str, level: str) -> None:
    assert [each.level for each in broker.server(seen(product=product, version=version))] == [level]


def test_a_clock_that_is_off_is_told_of() -> None:
    [found] = broker.clock(seen(probed=Probed(behind=90.0, unsure=0.6)))
    assert (found.level, found.value) == ("warn", "1m 30s behind this machine's, within 0.6 s")
    [found] = broker.clock(seen(probed=Probed(behind=-0.3, unsure=0.6)))
    assert (found.level, found.value) == ("ok", "as this machine's, within 0.6 s")


def test_a_management_api_that_refuses_the_login_is_told_of_without_the_password(host: Host) -> None:
    found = examined(host.url, management=host.management.replace("guest:guest", "me:s3cret"))
    assert found["management"].level == "warn"
    assert "it refuses the login" in found["management"].value
    assert "s3cret" not in str(found)
    assert "see management" in found["nodes"].value
    assert told(found, "bad") == {}


def test_a_strange_answer_of_the_management_api_hides_no_other_finding(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Management, "get", lambda _, *path: [{"s3cret": True}] if path == ("nodes",) else [])
    monkeypatch.setattr(Management, "queues", lambda *_: [])
    found = examined(host.url, management="http://localhost:1")
    assert (found["nodes"].level, found["nodes"].value) == ("warn", "not known: the check failed with KeyError")
    assert found["rights"].value == "all that a worker needs"
    assert "s3cret" not in str(found)


def test_a_management_api_that_is_away_is_told_of(host: Host) -> None:
    found = examined(host.url, management="http://127.0.0.1:1")
    assert (found["management"].level, found["management"].value) == (
        "warn",
        "http://127.0.0.1:1: no answer: Connection refused",
    )


def test_the_user_of_the_queue_is_the_one_of_the_management_api_unless_it_names_its_own(host: Host) -> None:
    mine = host.with_user("mine", tags="management", configure=".*", write=".*", read=".*")
    bare = host.management.replace("guest:guest@", "")
    found = examined(mine, management=bare)
    assert (found["management"].level, found["management"].value) == ("ok", bare)
    assert "Not monitor user" in found["nodes"].value  # which the tag does not allow
    assert found["policies"].value == "none that changes what our queues do"


class _Redirecting(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        type(self).paths.append(self.path)
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def redirecting() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Redirecting)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_redirect_is_not_followed_with_the_password(host: Host, redirecting: str) -> None:
    found = examined(host.url, management=redirecting)
    assert found["management"].value == f"{redirecting}: it answers 302"
    assert all(path.startswith("/api/") for path in _Redirecting.paths)

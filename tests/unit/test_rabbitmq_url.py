"""URLs of RabbitMQ."""

import pytest

from bide.clock import ManualClock
from bide.engines.base import Settings
from bide.engines.rabbitmq.location import Address, read
from bide.errors import BadUrl, BideError, ConfigError


def _read(url: str, **options: object) -> Address:
    return read(Settings(url=url, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "shown", "first"),
    [
        ("amqp://", "amqp://localhost:5672/", "amqp://guest:guest@localhost:5672/%2F?"),
        ("amqp://host", "amqp://host:5672/", "amqp://guest:guest@host:5672/%2F?"),
        ("amqp://u:p%40ss@host:1/a%2Fb", "amqp://host:1/a%2Fb", "amqp://u:p%40ss@host:1/a%2Fb?"),
        ("amqps://u:p@host/v", "amqps://host:5671/v", "amqps://u:p@host:5671/v?"),
        ("amqp://u:p@[::1]:7/", "amqp://[::1]:7/", "amqp://u:p@[::1]:7/%2F?"),
    ],
)
def test_a_url_names_broker_and_virtual_host(url: str, shown: str, first: str) -> None:
    address = _read(url)
    assert address.shown == shown
    assert address.urls[0].startswith(first)


def test_a_url_may_name_the_brokers_of_a_cluster() -> None:
    address = _read("amqp://u:p@one,two:5,three/v?namespace=shop&timeout=2.5&make=0")
    assert [each.partition("@")[2].partition("?")[0] for each in address.urls] == ["one:5672/v", "two:5/v", "three:5672/v"]
    assert (address.namespace, address.timeout, address.make) == ("shop", 2.5, False)


@pytest.mark.parametrize(
    "url",
    [
        "amqp://u:secr3t@x@host/",
        "amqp://u:secr3t@host:port/",
        "amqp://u:secr3t@host:99999/",
        "amqp://u:secr3t/x@host/v",
        "amqp://u:p@host/v#secr3t",
        "amqp://u:p@host/v/secr3t",
        "amqp://u:p@host/?secr3t=1",
        "amqp://u:p@host/?timeout=secr3t",
        "amqp://u:p@host/?timeout=",
        "amqp://u:p@host/?timeout=1&timeout=2",
        "amqp://u:p@host/?make=secr3t",
        "amqp://u:p@host/?cafile=secr3t",
        "amqp://u:p@host/?management=secr3t",
        "amqp://u:secr3t@ho st/",
        "amqp://u:secr3t@host//",
    ],
)
def test_a_bad_url_is_refused_and_shows_no_password(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        _read(url)
    assert "secr3t" not in str(refused.value)


def test_a_file_that_can_t_be_read_is_named_by_its_option() -> None:
    with pytest.raises(ConfigError, match="option certfile names no file") as refused:
        _read("amqps://u:p@host/?certfile=/secr3t")
    assert "secr3t" not in str(refused.value)


def test_commands_for_the_operator_name_user_and_virtual_host() -> None:
    address = _read("amqp://a%20b:p@host/shop%2Feu?namespace=x.y")
    patterns = r"'^x\.y:' '^(x\.y:|amq\.default$)' '^x\.y:'"
    assert address.rights == f"rabbitmqctl set_permissions -p shop/eu 'a b' {patterns}"
    assert _read("amqp://host").ctl("list_bindings") == "rabbitmqctl list_bindings"


def test_nothing_shows_the_password() -> None:
    address = _read("amqp://u:secr3t@host/v?management=http://u:secr3t@host:15672")
    assert "secr3t" not in repr(address) + address.shown


@pytest.mark.parametrize("options", [{"clock": ManualClock()}, {"client": object()}, {"namespace": "other"}])
def test_what_does_not_fit_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        _read("amqp://host/?namespace=shop", **options)


@pytest.mark.parametrize("namespace", ["", "a:b", "ü", "x" * 65, "a b"])
def test_a_namespace_that_can_t_be_is_refused(namespace: str) -> None:
    with pytest.raises(BideError):
        _read("amqp://host/", namespace=namespace)

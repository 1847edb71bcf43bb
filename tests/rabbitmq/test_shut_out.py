"""Users whom the broker does not let in, and what they are told."""

import pytest

from bide import ConfigError, Queue
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_hosts import name_in


@pytest.fixture
def user(rabbitmq_server: RabbitServer) -> str:
    """A new one, without any rights, who is removed with the broker."""
    rabbitmq_server.management.put("users", "nobody", password="s3cret", tags="")
    return "nobody:s3cret"


def refusal(url: str) -> str:
    with pytest.raises(ConfigError) as refused, Queue(url) as queue:
        queue.send("t")
    assert "s3cret" not in str(refused.value)
    return str(refused.value)


def test_a_virtual_host_that_is_not_there_is_named(rabbitmq_server: RabbitServer) -> None:
    assert "/nosuch does not let this user into the virtual host, or there is none" in refusal(rabbitmq_server.url_of("nosuch"))


def test_a_user_without_rights_in_the_virtual_host_is_told_so(rabbitmq_url: str, user: str) -> None:
    assert "does not let this user into the virtual host" in refusal(rabbitmq_url.replace("guest:guest", user))


def test_a_user_who_lacks_a_right_is_told_how_to_get_it(rabbitmq_server: RabbitServer, rabbitmq_url: str, user: str) -> None:
    rights = {"configure": "^bide:", "write": "^other:", "read": "^bide:"}
    rabbitmq_server.management.put("permissions", name_in(rabbitmq_url), "nobody", **rights)
    assert "this user lacks a right: access to" in refusal(rabbitmq_url.replace("guest:guest", user))


def test_a_wrong_password_is_told(rabbitmq_url: str, user: str) -> None:
    assert "refuses the login" in refusal(rabbitmq_url.replace("guest:guest", f"{user}-not"))

"""Asks the doctor of a RabbitMQ broker, and changes what it is asked of."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from bide.engines.base import Finding, Settings
from bide.engines.rabbitmq import RabbitSource, source
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_hosts import name_in

PATIENCE = 30.0  # seconds
PAUSE = 0.1  # seconds between two looks


def source_of(url: str, **options: str) -> RabbitSource:
    """With options of the URL."""
    asked = "&".join(f"{name}={value}" for name, value in options.items())
    return source(Settings(url=f"{url}?{asked}" if asked else url))


def examined(url: str, **options: str) -> Mapping[str, Finding]:
    return {each.name: each for each in source_of(url, **options).examine()}


def told(found: Mapping[str, Finding], level: str) -> dict[str, str]:
    """What is of this level."""
    return {name: each.value for name, each in found.items() if each.level == level}


class Host:
    """A virtual host of a broker, as its operator sees it."""

    def __init__(self, server: RabbitServer, url: str) -> None:
        self._server = server
        self.url = url
        self.name = name_in(url)

    @property
    def management(self) -> str:
        return self._server.management_url

    def examined(self) -> Mapping[str, Finding]:
        """Also through the management API."""
        return examined(self.url, management=self.management)

    def queues(self) -> list[str]:
        """Without those that clients have made for themselves."""
        names = [each["name"] for each in self._server.management.get("queues", self.name, query="?columns=name")]
        return [name for name in names if not name.startswith("amq.") and ":clock:" not in name]

    def exchanges(self) -> list[str]:
        """Without those that every virtual host has."""
        names = [each["name"] for each in self._server.management.get("exchanges", self.name, query="?columns=name")]
        return [name for name in names if name and not name.startswith("amq.")]

    def delete(self, kind: str, name: str) -> None:
        self._server.management.delete(kind, self.name, name)

    def unbind(self, exchange: str, queue: str) -> None:
        place = "bindings", self.name, "e", exchange, "q", queue
        for each in self._server.management.get(*place):
            self._server.management.delete(*place, each["properties_key"])

    def set_policy(self, pattern: str, *, kind: str = "policies", **settings: Any) -> None:
        body = {name.replace("_", "-"): value for name, value in settings.items()}
        self._server.management.put(kind, self.name, "ours", pattern=pattern, definition=body, **{"apply-to": "queues"})

    def until(self, queue: str, holds: Callable[[Mapping[str, Any]], bool]) -> None:
        """Wait until the management API, to which queues report now and then, tells this of a queue."""
        give_up = time.monotonic() + PATIENCE
        while not holds(self._server.management.get("queues", self.name, queue)):
            assert time.monotonic() < give_up, f"{queue} never was so"
            time.sleep(PAUSE)

    def make_queue(self, name: str, arguments: Mapping[str, Any]) -> None:
        self._server.management.put("queues", self.name, name, durable=True, arguments=arguments)

    def with_user(self, name: str, *, tags: str = "", **rights: str) -> str:
        """The URL of a user who has these rights here: configure, write, read."""
        user = f"{name}-{self.name}"
        self._server.management.put("users", user, password="s3cret", tags=tags)
        self._server.management.put("permissions", self.name, user, **rights)
        return self.url.replace("guest:guest@", f"{user}:s3cret@")

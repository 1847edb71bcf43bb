"""Gives tests virtual hosts of a RabbitMQ broker: new ones, and one that they share and find empty."""

import itertools
import time
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_management import ManagementError
from tests.servers.server import PATIENCE

PAUSE = 0.02  # seconds between two looks
COLUMNS = "?columns=name,type"


class VirtualHosts:
    """Those of one broker, which has the HTTP API.

    A new one costs 20 milliseconds, and 1 to 2 seconds at its end if an engine has declared its 60 queues in it. What an
    engine has declared in the shared one stays there, so it declares it once, which takes 2 to 4 seconds.
    """

    def __init__(self, server: RabbitServer) -> None:
        self._server = server
        self._numbers = itertools.count()  # so that a client that a test has left behind finds none of a later test
        self._shared = ""

    def new(self) -> str:
        """The URL of an empty one."""
        name = f"test{next(self._numbers)}"
        self._server.management.put("vhosts", name)
        return self._server.url_of(name)

    def delete(self, url: str) -> None:
        """With all that is in it. Clients that are still connected to it are told so."""
        self._server.management.delete("vhosts", name_in(url))

    def shared(self) -> str:
        """The URL of the shared one, whose clients are disconnected and whose queues are emptied before.

        Not of messages that nobody would route: at-least-once dead-lettering holds them, and no purge takes those.
        """
        if self._shared:
            self._disconnect(name_in(self._shared))
            for _ in range(2):  # what was on its way from one queue to another one has arrived there the second time
                self._purge(name_in(self._shared))
        else:
            self._shared = self.new()
        return self._shared

    def _disconnect(self, name: str) -> None:
        """Also those whom a test has left behind. What was delivered to them is in the queues again when they are gone."""
        api, give_up = self._server.management, time.monotonic() + PATIENCE
        while connections := api.get("vhosts", name, "connections"):
            for connection in connections:
                with suppress(ManagementError):  # it has gone by itself
                    api.delete("connections", connection["name"])
            if time.monotonic() > give_up:
                raise TimeoutError(f"clients of {name} stay: {connections}")
            time.sleep(PAUSE)

    def _purge(self, name: str) -> None:
        api = self._server.management
        for queue in api.get("queues", name, query=COLUMNS):
            if queue["type"] != "stream":  # from which nothing can be removed: there, the engine keeps the names of topics
                api.delete("queues", name, queue["name"], "contents")


def name_in(url: str) -> str:
    """The virtual host that a URL names."""
    return unquote(urlsplit(url).path[1:])

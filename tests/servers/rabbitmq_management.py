"""Calls the HTTP API of RabbitMQ's management plugin."""

import base64
import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from tests.servers.server import HOST, PATIENCE


class Management:
    """The plugin of one server. Errors are told with what it answered."""

    def __init__(self, port: int, user: str = "guest", password: str = "guest") -> None:
        self._port = port
        self._login = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def get(self, *path: str, query: str = "") -> Any:
        """What is at the path, whose parts may have any character in them."""
        return self._call("GET", path, query=query)

    def put(self, *path: str, **body: Any) -> None:
        self._call("PUT", path, body)

    def delete(self, *path: str) -> None:
        self._call("DELETE", path)

    def _call(self, verb: str, path: tuple[str, ...], body: Any = None, query: str = "") -> Any:
        place = "/".join(("/api", *(quote(part, safe="") for part in path))) + query
        text = None if body is None else json.dumps(body)
        connection = HTTPConnection(HOST, self._port, timeout=PATIENCE)
        try:
            connection.request(verb, place, text, {"Authorization": self._login, "Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ManagementError(f"{verb} {place}: {answer.status} {said.decode(errors='replace')}")
        return json.loads(said) if said else None


class ManagementError(Exception):
    """The API refused a call."""

"""Starts a name server of Erlang, by which the nodes of RabbitMQ and its commands find each other."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from tests.servers.programs import rabbitmq_program
from tests.servers.server import HOST, PATIENCE, Server


class Epmd(Server):
    """For `with`. Its folder is the home of the nodes that it knows: the cookie in it lets them and no others talk."""

    kind = "epmd"

    def __init__(self, patience: float = PATIENCE) -> None:
        super().__init__(patience)

    @property
    def environment(self) -> dict[str, str]:
        """For nodes and commands. What this machine says about a RabbitMQ of its own is left out."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {"HOME": str(self.folder), "ERL_EPMD_PORT": str(self.port), "ERL_EPMD_ADDRESS": HOST}

    def _write_settings(self) -> None:
        cookie = self.folder / ".erlang.cookie"
        if not cookie.exists():
            cookie.touch(mode=0o600)
            cookie.write_text(token_hex(20), encoding="utf-8")
            cookie.chmod(0o400)

    def _command(self) -> Sequence[str | Path]:
        return [rabbitmq_program("epmd"), "-port", str(self.port), "-address", HOST]

    def _answers(self) -> bool:
        with suppress(OSError):
            socket.create_connection((HOST, self.port), timeout=1.0).close()
            return True
        return False

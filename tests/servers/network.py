"""A network for a group of servers on this machine, which can be parted into sides that don't hear each other."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.servers.server import PATIENCE, NotStarted

RELAY = Path(__file__).with_name("relay.py")


class Network:
    """For `with`. Each server of a group has an address of its own in 127.0.0.0/8, which Linux has without being asked.

    A server listens at 127.0.0.1 and calls from its address (`bind-source-addr`); to the others it gives its address as
    the place where it listens. There a relay takes the connections and carries them on, or doesn't. The relay is a process
    of its own, not a thread: tests fork. Clients may call the server itself or the relay, and a cut does nothing to them.
    """

    def __init__(self) -> None:
        # Not the seed of the tests. Two groups at the same addresses would do no harm: their ports differ.
        numbers = random.SystemRandom()
        self._prefix = f"127.{numbers.randint(1, 254)}.{numbers.randint(0, 254)}"
        self._addresses = 0
        self._relay: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._relay = subprocess.Popen(
            [sys.executable, "-I", str(RELAY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._relay is not None
        self._relay.kill()
        self._relay.communicate(timeout=PATIENCE)

    @property
    def pid(self) -> int:
        """Of the relay."""
        assert self._relay is not None, "the network is started by `with`"
        return self._relay.pid

    def new_address(self) -> str:
        self._addresses += 1
        return f"{self._prefix}.{self._addresses}"

    def listen(self, address: str, port: int) -> None:
        """Carry what comes to this port of the address to the same port of 127.0.0.1."""
        self._tell("listen", address, port, port)

    def move(self, address: str, side: int) -> None:
        """Put a server on a side. From now on no byte passes between it and those on others, in neither direction."""
        self._tell("side", address, side)

    def silence(self, address: str) -> None:
        """What clients and this server send each other is lost from now on; called again, no more. Connections stay open.

        Those of a client that were there, or were made, while it lasted stay silent after it.
        """
        self._tell("silence", address)

    def _tell(self, *words: str | int) -> None:
        assert self._relay is not None, "the network is started by `with`"
        assert self._relay.stdin is not None
        assert self._relay.stdout is not None
        print(*words, file=self._relay.stdin, flush=True)
        answer = self._relay.stdout.readline().strip()
        if answer != "ok":
            raise NotStarted(f"the relay did not {' '.join(map(str, words))}: {answer or 'it has ended'}")

"""What a worker process holds and how it is, written down where its supervisor can read it after the worker's death.

A small file that both map into memory: what a process wrote there is read even when it was killed in the next instant.
It has no name, so nobody can remove it, such as a cleaner of temporary folders: the worker inherits it.
Each claim has a name, which is written before the claim is made; an engine gives the same deliveries to the same name.
"""

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Sequence

import msgspec

from bide.engines.base import MAX_BATCH
from bide.ids import HOST, process_name, requests

_HEAD = struct.Struct("<16sddQQQQ")
_BEAT = struct.Struct("<d")
_PROCESS = struct.Struct(f"<{HOST + 16}s")
_SLOT = struct.Struct("<Q")
_PROCESS_AT = _HEAD.size + _BEAT.size
_SLOTS = _PROCESS_AT + _PROCESS.size  # where they begin


class Health(msgspec.Struct, frozen=True):
    """The state of a worker, as `worker.health()` returns it."""

    seen: float = 0.0  # when its loop last went round, by time.monotonic()
    failing_since: float = 0.0  # when the engine began to fail, by time.monotonic(); 0: it does not
    running: int = 0
    done: int = 0
    failed: int = 0
    unhandled: int = 0


class Names:
    """Names for claims, of a worker that nobody keeps a claim log of."""

    def __init__(self) -> None:
        self._new_request = requests()

    def begin(self) -> tuple[int, str]:
        return 0, self._new_request()

    def hold(self, slot: int, count: int) -> None:
        """Nobody asks."""

    def let_go(self, slot: int, count: int = 1) -> None:
        """Nobody asks."""


class ClaimLog:
    def __init__(self, file: int) -> None:
        """Of an open file, which it closes."""
        os.set_inheritable(file, False)
        self.file: int = file
        self._map = mmap.mmap(file, 0)
        self._name: str = _HEAD.unpack_from(self._map)[0].rstrip(b"\0").decode()
        self._slots = (len(self._map) - _SLOTS) // _SLOT.size
        self._free = list(range(self._slots))
        self._holding: dict[int, int] = {}
        self._claims = 0

    @classmethod
    def new(cls, concurrency: int) -> "ClaimLog":
        """An empty one for a worker that is about to be started; its claims have names that no other's have."""
        slots = 2 * concurrency + 2 * MAX_BATCH  # a claim a message, of those that run and those on their way back
        head = _HEAD.pack(os.urandom(6).hex().encode(), *msgspec.structs.astuple(Health()))
        file = _nameless_file()
        try:
            with open(file, "wb", closefd=False) as out:
                out.write(head + bytes(_BEAT.size + _PROCESS.size + slots * _SLOT.size))
            return cls(file)
        except BaseException:
            os.close(file)
            raise

    # the worker's side

    def begin(self) -> tuple[int, str]:
        """Write down a claim that is about to be made: where, and its name."""
        slot = self._free.pop()
        if not self._claims:
            _PROCESS.pack_into(self._map, _PROCESS_AT, process_name(os.getpid()).encode())
        self._claims += 1
        self._write(slot, self._claims)
        return slot, self._request(self._claims)

    def hold(self, slot: int, count: int) -> None:
        """The claim was answered with so many deliveries."""
        if count:
            self._holding[slot] = count
        else:
            self._clear(slot)

    def let_go(self, slot: int, count: int = 1) -> None:
        """So many of a claim's deliveries have ended."""
        self._holding[slot] -= count
        if not self._holding[slot]:
            del self._holding[slot]
            self._clear(slot)

    def tell(self, health: Health) -> None:
        _HEAD.pack_into(self._map, 0, self._name.encode(), *msgspec.structs.astuple(health))

    def beat(self) -> None:
        """The heartbeat goes; called in its thread."""
        _BEAT.pack_into(self._map, _HEAD.size, time.monotonic())

    def _clear(self, slot: int) -> None:
        self._write(slot, 0)
        self._free.append(slot)

    def _write(self, slot: int, claim: int) -> None:
        _SLOT.pack_into(self._map, _SLOTS + slot * _SLOT.size, claim)

    @property
    def _process(self) -> str:
        """The name of the process that makes the claims."""
        written: bytes = _PROCESS.unpack_from(self._map, _PROCESS_AT)[0]
        return written.rstrip(b"\0").decode()

    def _request(self, claim: int) -> str:
        return f"{self._process}/{self._name}.{claim:x}"

    # the supervisor's side

    def requests(self) -> Sequence[str]:
        """The names of the claims that may hold something."""
        claims = (_SLOT.unpack_from(self._map, _SLOTS + slot * _SLOT.size)[0] for slot in range(self._slots))
        return [self._request(claim) for claim in claims if claim]

    def signs(self) -> tuple[float, float]:
        """Of life: when the loop last went round, and when the heartbeat did, by time.monotonic()."""
        return self.health().seen, _BEAT.unpack_from(self._map, _HEAD.size)[0]

    def health(self) -> Health:
        return Health(*_HEAD.unpack_from(self._map)[1:])

    def close(self) -> None:
        self._map.close()
        os.close(self.file)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("bide-claim-log")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

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

from bide.ids import HOST, process_name, requests

_HEAD = struct.Struct("<16sddQQQQQ")
_BEAT = struct.Struct("<d")
_PROCESS = struct.Struct(f"<{HOST + 16}s")
_SLOT = struct.Struct("<Q")
_PROCESS_AT = _HEAD.size + _BEAT.size
_USED_AT = _PROCESS_AT + _PROCESS.size  # how many slots have ever been used: none beyond is looked at
_SLOTS = _USED_AT + _SLOT.size  # where they begin
_WAITS = 2**63  # beside the number of a claim, while no handler has begun of what it brings
CLAIMS = 2**20  # that may hold something: batches may hold as many messages that came one by one. Only what is used takes room.
USUAL = 32_768  # bytes that it has from the start


class Health(msgspec.Struct, frozen=True):
    """The state of a worker, as `worker.health()` returns it."""

    seen: float = 0.0  # when its loop last went round, by time.monotonic()
    failing_since: float = 0.0  # when the engine began to fail, by time.monotonic(); 0: it does not
    running: int = 0
    done: int = 0
    failed: int = 0
    unhandled: int = 0
    unconfirmed: int = 0  # ends that happened, and that a failover may undo


class ClaimNames:
    """Names for claims, of a worker that nobody keeps a claim log of."""

    def __init__(self) -> None:
        self._new_request = requests()

    def room(self) -> bool:
        return True

    def begin(self, *, ahead: bool = False) -> tuple[int, str]:
        return 0, self._new_request()

    def hold(self, slot: int, count: int) -> None:
        """Nobody asks."""

    def waits(self, slot: int) -> None:
        """Nobody asks."""

    def begins(self, slot: int) -> None:
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
        self._used = 0
        self._free: list[int] = []  # of those that were used
        self._holding: dict[int, int] = {}
        self._claims = 0

    @classmethod
    def new(cls, claims: int = CLAIMS) -> "ClaimLog":
        """An empty one for a worker that is about to be started: its claims have names that no other's have."""
        head = _HEAD.pack(os.urandom(6).hex().encode(), *msgspec.structs.astuple(Health()))
        file = nameless_file()
        try:
            with open(file, "wb", closefd=False) as out:
                out.write(head + bytes(USUAL - len(head)))  # or a full disk would be met where nobody can say so
                out.truncate(_SLOTS + claims * _SLOT.size)
            return cls(file)
        except BaseException:
            os.close(file)
            raise

    # the worker's side

    def room(self) -> bool:
        """Whether another claim can be written down."""
        return bool(self._free) or self._used < self._slots

    def begin(self, *, ahead: bool = False) -> tuple[int, str]:
        """Write down a claim that is about to be made: where, and its name. There has to be room. `ahead`: until `begins` is
        called, nobody but the engine has seen what it brings.
        """
        slot = self._free.pop() if self._free else self._next()
        if not self._claims:
            _PROCESS.pack_into(self._map, _PROCESS_AT, process_name(os.getpid()).encode())
        self._claims += 1
        self._write(slot, self._claims | _WAITS if ahead else self._claims)
        return slot, self._request(self._claims)

    def hold(self, slot: int, count: int) -> None:
        """The claim was answered with so many deliveries."""
        if count:
            self._holding[slot] = count
        else:
            self._clear(slot)

    def waits(self, slot: int) -> None:
        """What the claim brought has been read, and no handler begins before `begins` is called."""
        self._write(slot, self._claim(slot) | _WAITS)

    def begins(self, slot: int) -> None:
        """From now on a message of it may be what kills the process."""
        self._write(slot, self._claim(slot) & ~_WAITS)

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

    def _next(self) -> int:
        """A slot that was never used."""
        self._used += 1
        _SLOT.pack_into(self._map, _USED_AT, self._used)
        return self._used - 1

    def _clear(self, slot: int) -> None:
        self._write(slot, 0)
        self._free.append(slot)

    def _claim(self, slot: int) -> int:
        written: int = _SLOT.unpack_from(self._map, _SLOTS + slot * _SLOT.size)[0]
        return written

    def _write(self, slot: int, claim: int) -> None:
        _SLOT.pack_into(self._map, _SLOTS + slot * _SLOT.size, claim)

    @property
    def _process(self) -> str:
        """The name of the process that makes the claims."""
        written: bytes = _PROCESS.unpack_from(self._map, _PROCESS_AT)[0]
        return written.rstrip(b"\0").decode()

    def _request(self, claim: int) -> str:
        return f"{self._process}/{self._name}.{claim & ~_WAITS:x}"

    # the supervisor's side

    def requests(self) -> Sequence[str]:
        """The names of the claims that may hold something."""
        return [self._request(claim) for claim in self._written() if claim]

    def waiting(self) -> Sequence[str]:
        """Of those, which no handler has begun of."""
        return [self._request(claim) for claim in self._written() if claim & _WAITS]

    def _written(self) -> Sequence[int]:
        used = _SLOT.unpack_from(self._map, _USED_AT)[0]
        return struct.unpack_from(f"<{used}Q", self._map, _SLOTS)

    def signs(self) -> tuple[float, float]:
        """Of life: when the loop last went round, and when the heartbeat did, by time.monotonic()."""
        return self.health().seen, _BEAT.unpack_from(self._map, _HEAD.size)[0]

    def health(self) -> Health:
        return Health(*_HEAD.unpack_from(self._map)[1:])

    def close(self) -> None:
        self._map.close()
        os.close(self.file)


def nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("bide-claim-log")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())

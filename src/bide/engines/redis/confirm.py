"""When a write counts as accepted: at once, on the disk, or on replicas too."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bide.core.formats import plural
from bide.engines.redis.failures import lacking
from bide.errors import ConfigError

PATIENCE = 0.4  # of the time that an answer may take: a confirmation that takes longer is short
BRIEFLY = "50"  # ms for the confirmation of an end, after one that was short: workers go on, and the others are told soon
AT_ONCE = ("INFO", "persistence"), ("CONFIG", "GET", "appendfsync")  # asked of a server that syncs each write
SURE = 5.0  # seconds for which their answers hold: an operator may change the settings
TOUCHED = 86_400_000  # ms that the key lives, by which a repeated operation writes something to be confirmed


class Confirmation(NamedTuple):
    """What is asked after each write, on its connection."""

    asked: str  # as the user wrote it
    wait: tuple[str, ...]  # the command
    needed: int
    at_once: bool = False  # the server had each write on its disk before it answered, when it was asked

    @property
    def brief(self) -> "Confirmation":
        return self._replace(wait=(*self.wait[:-1], BRIEFLY))

    @property
    def on_disk(self) -> bool:
        return self.wait[0] == "WAITAOF"

    def missing(self, answer: Any) -> str:
        """What the answer says is missing; nothing when enough have it."""
        if isinstance(answer, Exception):
            if lacking(answer):  # so far it had each write on its disk, and was not asked
                return "the server does not write to its disk any more before it answers"
            return str(answer).rstrip(".")
        had = int(answer[0] if isinstance(answer, list) else answer)
        if had >= self.needed:
            return ""
        if self.on_disk:
            return "it was not written to the disk in time"
        return f"{had} of {plural(self.needed, 'replica')} had it in time"


def confirmation(asked: str, timeout: float) -> Confirmation | None:
    """What `confirm=` asks for; None for what the server has done when it answers."""
    patience = str(max(1, round(1000 * PATIENCE * timeout)))
    if asked == "aof":
        return Confirmation(asked, ("WAITAOF", "1", "0", patience), 1)
    replicas = re.fullmatch(r"replicas:(\d+)", asked)
    return Confirmation(asked, ("WAIT", replicas[1], patience), int(replicas[1])) if replicas else None


def touch(meta: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Commands that write something in any case: the first, which a full server allows; or the second if it did nothing."""
    key = meta.removesuffix("meta") + "touched"
    return ("PEXPIRE", key, str(TOUCHED)), ("SET", key, "", "PX", str(TOUCHED))


def syncs_at_once(persistence: bytes | Exception, fsync: Sequence[bytes] | Exception) -> bool:
    """Whether each write is on the disk before it is answered, by INFO and CONFIG GET."""
    if isinstance(persistence, Exception) or isinstance(fsync, Exception):
        return False
    return b"aof_enabled:1" in persistence and list(fsync[1:]) == [b"always"]


def check_disk(shown: str, info: Mapping[str, str], fsync: str | None) -> bool:
    """Whether `confirm="aof"` needs WAITAOF here, or writes are on the disk before they are answered. Refuses other servers."""
    if info.get("aof_enabled") != "1":
        raise ConfigError(f'{shown} writes no AOF, which confirm="aof" needs: set appendonly yes, or leave confirm= out.')
    if fsync == "always":
        return False
    version = re.match(r"(\d+)\.(\d+)", info.get("redis_version", ""))
    if version is None or (int(version[1]), int(version[2])) < (7, 2):
        raise ConfigError(
            f'{shown} is older than Redis 7.2 and can\'t tell what is on the disk: for confirm="aof" set appendfsync always, '
            "or update it."
        )
    return True

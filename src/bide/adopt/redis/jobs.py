"""Jobs in a hash, by their ids: for sources whose entries are not the messages, but the ids of them."""

from collections.abc import Callable

import msgspec

from bide.adopt.redis.server import Server
from bide.adopt.redis.taking import Entry
from bide.adopt.shaping import field
from bide.adopt.source import Unreadable


class Jobs:
    """The hash. `id_field`: entries are JSON, and this field of them is the id; without it, entries are ids."""

    def __init__(self, server: Server, key: str, id_field: str | None = None) -> None:
        self.key: str = key
        self._server = server
        self._id_field = id_field

    def id(self, entry: Entry) -> bytes:
        """The id of an entry. Raises Unreadable."""
        if self._id_field is None:
            return entry.content
        found = field(entry.content, self._id_field)
        try:
            return msgspec.json.decode(found, type=str).encode()  # PHP escapes / and all that is not ASCII
        except (msgspec.DecodeError, UnicodeError):
            return found

    def read(self, entries: list[Entry], again: Callable[[], list[Entry]]) -> list[Entry]:
        """The entries, each with its job if there is one. `again` reads the entries anew.

        An entry whose job is not there may have been taken, and its job with it, since the entries were read: then it is gone.
        """
        ids = [self._known(entry) for entry in entries]
        jobs = self._server.call("HMGET", self.key, *ids) if ids else []
        here = {entry.content for entry in again()} if None in jobs else set()
        return [
            entry._replace(job=job, gone=job is None and entry.content not in here)
            for entry, job in zip(entries, jobs, strict=True)
        ]

    def _known(self, entry: Entry) -> bytes:
        try:
            return self.id(entry)
        except Unreadable:
            return b""

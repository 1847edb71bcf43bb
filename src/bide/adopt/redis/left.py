"""What a run leaves at a source, and how often each entry of it was counted: in a list, several may be equal."""

from collections import Counter

from bide.adopt.source import Refused


class Left:
    """A pass meets entries page by page, and a page again when others on it were taken. An entry counts when it is met more
    often than it was counted before: on this page, and on those before it, which the pass has left behind.

    `repeats`: entries may be equal. Otherwise one that is met again is the same one, which others have moved.
    """

    def __init__(self, *, repeats: bool) -> None:
        self._repeats = repeats
        self._reasons: dict[bytes, str] = {}
        self._counted = Counter[bytes]()
        self._behind = Counter[bytes]()
        self._here = Counter[bytes]()

    def __contains__(self, content: bytes) -> bool:
        return content in self._reasons

    def give_back(self, content: bytes) -> None:
        """An entry was given back, and whoever gave it back has counted it."""
        self._reasons.setdefault(content, "is equal to one that was given back")
        self._counted[content] += 1

    def refuse(self, content: bytes, shown: str, reason: str) -> list[Refused]:
        """An entry can't be taken: it is told if this run has not counted it yet."""
        self._reasons.setdefault(content, reason)
        return self.met(content, shown)

    def met(self, content: bytes, shown: str) -> list[Refused]:
        """The same, of an entry that is left already."""
        self._here[content] += 1
        here = self._here[content] + self._behind[content] if self._repeats else 1
        if here <= self._counted[content]:
            return []
        self._counted[content] += 1
        return [Refused(shown, self._reasons[content])]

    def page(self) -> None:
        """A page begins, at the place of the last one."""
        self._here.clear()

    def behind(self) -> None:
        """The pass goes on behind the page."""
        self._behind.update(self._here)

    def put_behind(self, content: bytes) -> None:
        """An entry that was given back is before the page."""
        self._behind[content] += 1

    def from_start(self) -> None:
        """A new pass begins."""
        self._behind.clear()

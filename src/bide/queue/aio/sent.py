# unasync: ../sync/sent.py
"""What a send of a task with keep= returns: its result can be asked for."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

from bide.types import Duration, Sent

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ask: TypeAlias = Callable[[str, Duration | None], Awaitable[Any]]


class AsyncTaskSent(Sent, Generic[R_co], frozen=True, dict=True, gc=True):
    """What a send of a task with `keep=` returns: a Sent, and its equal, that knows its queue. Pickled, it is a Sent."""

    @overload
    async def result(self: "AsyncTaskSent[Coroutine[Any, Any, T]]", *, timeout: Duration | None = None) -> T: ...
    @overload
    async def result(self: "AsyncTaskSent[T]", *, timeout: Duration | None = None) -> T: ...
    async def result(self, *, timeout: Duration | None = None) -> Any:
        """Return what the task returned, once the message is done. Wait at most for `timeout`; 0 looks once.

        Raises the same errors as `queue.result`.
        """
        ask: Ask | None = vars(self).get("ask")
        if ask is None:  # a copy with other values
            return super().result(timeout=timeout)
        return await ask(self.id, timeout)

    def _plain(self) -> Sent:
        return Sent(self.id, self.topic, self.due, self.outcome)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, AsyncTaskSent) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._plain())

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> Any:
        return self._plain().__reduce__()


def askable(sent: Iterable[Sent], keeps: Mapping[str, int], ask: Ask) -> list[Sent]:
    """What was sent; where its task keeps results, as what can be asked for them."""
    return [_of(each, ask) if each.topic in keeps else each for each in sent]


def _of(sent: Sent, ask: Ask) -> AsyncTaskSent[Any]:
    made: AsyncTaskSent[Any] = AsyncTaskSent(sent.id, sent.topic, sent.due, sent.outcome)
    vars(made)["ask"] = ask
    return made

"""The end of messages: what handlers returned is kept, and the engine is told how deliveries ended until it has taken it."""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Ended, Ref
from bide.engines.lots import Ends, Lot, Stretch, done
from bide.engines.results import Arrival, Kept
from bide.errors import ConfirmTimeout, EngineError, OutcomeUnknown
from bide.logs import Log
from bide.queue.aio.opened import AsyncOpened
from bide.queue.batching import LOOK, AsyncBatching, Collector, Line
from bide.queue.envelope import Envelope
from bide.queue.run.aio.keep import AsyncKeepStep
from bide.queue.run.message import Handling
from bide.queue.tasks.outcome import DONE, RELEASED, Outcome
from bide.worker.engine_trouble import EngineTrouble, refused
from bide.worker.stop import CLOSING, LAST_WORDS, StopWaits

_log = Log("bide.worker")
SLOW = 0.5  # seconds that a message whose result is on its way keeps its place, where the engine has several parts
AGAIN = 60.0  # seconds between two warnings of ends that were not confirmed


class ResultKeeper:
    def __init__(self, opened: AsyncOpened, envelope: Envelope, gives_way: Callable[[Handling], None]) -> None:
        self._engine: AsyncEngine = opened.engine
        self._step = AsyncKeepStep(opened.engine, envelope)
        self._gives_way = gives_way
        self._batches: AsyncBatching[Kept, list[Arrival]] = AsyncBatching(
            self._step.fulfil, lambda each: self._engine.part_of(Ref(each.id))
        )
        self._arrivals: AsyncBatching[Arrival, None] = AsyncBatching(
            self._step.arrive, lambda each: self._engine.part_of(Ref(each.dependent))
        )
        self._retrying = EngineTrouble("keep results")

    async def keep(self, handling: Handling, lasts: int) -> Outcome | None:
        """What becomes of a message whose handler has returned, once that is kept. It is tried until the engine takes it."""
        delivery = handling.delivery
        part, watch = self._engine.part_of(Ref(delivery.id)), None
        if part is not None:
            watch = asyncio.get_running_loop().call_later(SLOW, self._gives_way, handling)
        try:
            kept = await self._step.kept(handling, lasts)
            while kept is not None:
                try:
                    for each in [self._arrivals.begin(arrival) for arrival in await self._batches.add(kept)]:
                        await each  # if one of them fails, all is repeated
                except EngineError as error:
                    await self._retrying.lose(error, part)
                else:
                    self._retrying.regain(part)
                    break
            return DONE
        except asyncio.CancelledError:  # the lease was lost, or the worker stops: the handler runs again elsewhere
            return None if handling.why == "lost" else RELEASED
        except Exception:
            _log.exception("The engine broke down over the result of message %s, which is not kept", delivery.id)
            return DONE
        finally:
            if watch is not None:
                watch.cancel()

    def drop(self) -> None:
        """Give up what is left: these handlers run again."""
        self._batches.drop()
        self._arrivals.drop()


_taken, _lot, _place, _end = map(attrgetter, ("taken", "taken.lot", "place", "end"))

MOST = 10 * MAX_BATCH  # ends that wait for parts of the engine, also for one that does not answer


class RefusedEnds(NamedTuple):
    """Ends that a part of the engine has refused have a line of their own: they may be refused for good."""

    part: Hashable


class Settler(Collector[Handling]):
    """The leases are renewed meanwhile."""

    def __init__(
        self,
        engine: AsyncEngine,
        returned: Callable[[Sequence[Handling]], None],
        settled: Callable[[Sequence[Handling], Sequence[Ended]], None],
    ) -> None:
        super().__init__()
        self._tell_returned = returned
        self.returned: list[Handling] = []  # handlers of plain tasks, until the next look
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._settled = settled
        self._retrying = EngineTrouble("end deliveries")
        self.unconfirmed: int = 0  # ends that happened, and that a failover may undo
        self._told = -AGAIN  # when the log said so

    def __len__(self) -> int:
        """Ends that the engine has not answered."""
        return len(self.returned) + sum(len(line.waiting) + len(line.under_way) for line in self.lines)

    def has_returned(self, handling: Handling) -> None:
        """The handler of a plain task has. What has returned by the loop's next turn is put together."""
        if not self.returned:
            self._loop.call_soon(self.gather)
        if handling.at_work is not None:
            handling.ends_work(handling.at_work)
        self.returned.append(handling)

    def gather(self, mean: float | None = None) -> None:
        """`mean`: seconds that each of these has taken, about."""
        if gathered := self.returned[:]:
            self.returned.clear()
            for taken in dict.fromkeys(map(_taken, gathered)):
                if mean is not None:
                    taken.mean = mean
                if taken.lot is None:
                    for each in gathered:
                        if each.taken is taken:
                            each.end = done(each.claimed, None if taken.at_work is None else each.noted())
            self.put_all(gathered)
            self._tell_returned(gathered)

    @property
    def crowded(self) -> bool:
        """Whether more ends wait than go into two calls. Those for a part that does not answer keep back no others."""
        return any(len(line.waiting) >= 2 * MAX_BATCH and not line.stalled for line in self.lines) or len(self) >= MOST

    def part_of(self, entry: Handling) -> Hashable:
        return self._engine.part_of(_end_of(entry))

    def decided(self) -> list[End]:
        """What the engine has not answered, for whoever tells it in this worker's place."""
        return [
            *[_end_of(each) for line in self.lines for each in [*line.under_way, *line.waiting]],
            *[done(each.claimed) for each in self.returned],
        ]

    async def drain(self, ending: StopWaits) -> int:
        """See all through, for as long as the stop has left but for closing; how many are left.

        If only parts of the engine are to be told that do not answer, while others do, they are given up sooner.
        """
        loop = asyncio.get_running_loop()
        self.gather()
        until = loop.time() + max(LAST_WORDS, ending.overtime - CLOSING)
        while lines := [line for line in self.lines if line.waiting or line.under_way]:
            late = min(until, ending.silence) if all(line.stalled for line in lines) else until
            if (seconds := late - loop.time()) <= 0:
                break
            await ending.wait([line.begin() for line in lines], min(seconds, LOOK))
        return len(self)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        try:
            answers = await self._engine.settle(_ends_of(batch))
        except ConfirmTimeout as error:
            answers = self._sent(batch, error)
        except EngineError as error:
            if isinstance(error, OutcomeUnknown) and error.answers:
                done, batch = _parted(batch, error.answers)
                self._settled(*done)
                if not refused(error):
                    line.bring_last(batch)  # a part of the engine does not answer, and must not hold up what others take
                    return
            if refused(error):
                if len(batch) > 1:  # one of them may be the cause, and must not hold up the others
                    line.bring_again(batch, singly=True)
                    return
                if not isinstance(line.part, RefusedEnds):
                    self.put_in(RefusedEnds(line.part), batch[0])
                    return
                line.bring_last(batch)
            else:
                line.bring_again(batch)
            await self._retrying.lose(error, line.part)
            return
        except Exception:  # nobody foresaw it, and one of them may be the cause
            _log.exception("The engine broke down over the ends of %s", plural(len(batch), "message"))
            if len(batch) > 1:
                line.bring_again(batch, singly=True)
                return
            answers = ["lost"]  # it is given up, and comes back when its lease ends
        except BaseException:  # the loop shuts down: what is left may be told in a drain
            line.bring_again(batch)
            raise
        if self._retrying.failing_since:
            self._retrying.regain(line.part)
        self._settled(batch, answers)

    def _sent(self, batch: Sequence[Handling], error: ConfirmTimeout) -> list[Ended]:
        """The ends have happened. To tell them again would keep slots from fresh work: a failover may repeat a delivery."""
        told = error.answers or [None] * len(batch)
        self.unconfirmed += sum(answer is None for answer in told)
        if time.monotonic() - self._told >= AGAIN:
            self._told = time.monotonic()
            _log.warning("The ends of %s were not confirmed, so far: %s", plural(self.unconfirmed, "message"), error)
        return [answer or "done" for answer in told]


def _end_of(handling: Handling) -> End:
    return handling.end or done(handling.claimed)


def _ends_of(batch: Sequence[Handling]) -> Sequence[End]:
    stretches: list[Stretch] = []
    for lot, some in groupby(batch, _untold_lot if any(map(_end, batch)) else _lot):
        if lot is None:
            stretches.append(Stretch(None, ends=list(map(_end_of, some))))
        else:
            handlings = list(some)
            taken, places = handlings[0].taken, list(map(_place, handlings))
            seconds = () if taken.at_work is None else _took(handlings, taken.mean)
            stretches.append(Stretch(lot, places, now=taken.now, seconds=seconds))
    return Ends(stretches) if len(stretches) > 1 or not stretches[0].ends else stretches[0].ends


def _took(handlings: Sequence[Handling], usual: float) -> list[float]:
    """Seconds of work. `usual`: of those that were called one after the other, in the mean."""
    return [usual if (seconds := each.seconds) is None else seconds for each in handlings]


def _untold_lot(handling: Handling) -> Lot | None:
    return handling.taken.lot if handling.end is None else None


def _parted(
    batch: Sequence[Handling], answers: Sequence[Ended | None]
) -> tuple[tuple[Sequence[Handling], Sequence[Ended]], list[Handling]]:
    """What was done, with its answers, and what was not, as far as is known."""
    known = [(entry, answer) for entry, answer in zip(batch, answers, strict=True) if answer is not None]
    left = [entry for entry, answer in zip(batch, answers, strict=True) if answer is None]
    return ([entry for entry, _ in known], [answer for _, answer in known]), left

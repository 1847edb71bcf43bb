"""What one claim has brought to a worker: one object, from the claim until the engine has answered how the last of it ended."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bide.engines.base import Claimed
from bide.engines.lots import Lot
from bide.queue import AsyncDelivery, Delivery
from bide.queue.aio.claims import AsyncOpener
from bide.queue.deliveries import Read, internals
from bide.queue.heartbeat import Heartbeat
from bide.queue.leases import ClaimBeat, Lease
from bide.queue.run.message import Handling, Taken


class Common:
    """What all claims of a worker have in common."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        opener: AsyncOpener,
        in_sync: Callable[[AsyncDelivery], Delivery],
        lease_ms: int,
        lost: Callable[["Leased", int], None],
    ) -> None:
        """`lost` is told, in any thread, of the place of a message whose lease is lost."""
        self.heartbeat: Heartbeat = heartbeat
        self.opener: AsyncOpener = opener
        self.in_sync: Callable[[AsyncDelivery], Delivery] = in_sync
        self.lease_ms: int = lease_ms
        self.lost: Callable[[Leased, int], None] = lost


class Leased(ClaimBeat, Taken):
    """It is what the heartbeat renews, too."""

    def __init__(self, common: Common, read: Read, *, slot: int, until: int) -> None:
        """Its leases do not end before `until`. `slot`: where the claim log has the claim."""
        ClaimBeat.__init__(self, common.lease_ms, until, common.lost)
        Taken.__init__(self, common.in_sync)
        self._common = common
        self.at_work: float | None = read.at_work
        self.now: int = read.now  # the engine's time then
        self.lot: Lot | None = read.messages if isinstance(read.messages, Lot) else None
        self.slot: int = slot
        self.handlings: dict[int, Handling] = {}  # what has not ended, by place

    def delivery(self, handling: Handling) -> AsyncDelivery:
        made = self._common.opener.delivery(handling.claimed, handling.body, self.now)
        inside = internals(made)
        inside.kept = partial(self._common.heartbeat.extended, self)
        inside.most = handling.most
        inside.at_work = self.at_work
        return made

    def claimed(self, place: int) -> Claimed:
        assert self.lot is not None
        return self.lot[place]

    def unkept(self, delivery: AsyncDelivery) -> Callable[[], Any]:
        """What stops the renewals of its lease."""
        return partial(self._common.heartbeat.remove, self, internals(delivery).hold)

    def named(self) -> dict[Lease, int]:
        return {internals(handling.delivery).hold: place for place, handling in self.handlings.items()}

    def end(self, places: Sequence[int]) -> bool:
        if self.places is not None:
            for place in places:
                self.holds.pop(internals(self.handlings[place].delivery).hold, None)
        if len(places) == len(self.handlings):
            self.handlings.clear()
        for place in places if self.handlings else ():
            del self.handlings[place]
        return not self.handlings

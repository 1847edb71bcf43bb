"""A delivery that is made once somebody asks for it, while another thread says what concerns it."""

import math
from typing import Any, cast

from bide import AsyncQueue
from bide.engines.base import Claimed
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.deliveries import Internals, internals
from bide.queue.run.message import Handling, Taken

CLAIMED = Claimed("id", "mail", b"{}", {}, None, 0, 0, 1, 3, "token")


class Taker(Taken):
    def claimed(self, place: int) -> Claimed:
        return CLAIMED

    def delivery(self, handling: Handling) -> AsyncDelivery:
        class Interrupted(Internals):
            """While it is told that it has ended, the handler is told to stop."""

            def __setattr__(self, name: str, value: object) -> None:
                super().__setattr__(name, value)
                if name == "ended" and value:
                    handling.begin_by(math.inf)
                    handling.expire()

        return AsyncDelivery(Interrupted(CLAIMED, {}, 0, 0), cast(Any, None), cast(Any, None))


def test_what_is_said_while_a_delivery_is_made_is_told_to_it() -> None:
    queue = AsyncQueue("memory://")

    @queue.task("mail")
    async def mail() -> None: ...

    handling = Handling(Taker(lambda delivery: delivery), 0, mail.definition, "mail", {})
    handling.told = True
    made = internals(handling.delivery)
    assert (made.ended, made.expired, made.deadline) == (True, True, math.inf)

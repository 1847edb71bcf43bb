"""Messages on RabbitMQ: a ladder of queues whose messages expire, on the stock broker.

`amqp://user:password@host:5672/vhost` names the broker and the virtual host.
"""

from bide.engines.base import Capabilities, Finding, Settings
from bide.engines.rabbitmq import doctor
from bide.engines.rabbitmq.aio.engine import AsyncRabbit
from bide.engines.rabbitmq.doctor import repair
from bide.engines.rabbitmq.doctor.repair import Removal
from bide.engines.rabbitmq.holdings import holdings_at
from bide.engines.rabbitmq.ladder import MAX_DELAY, TICK, QueueNames
from bide.engines.rabbitmq.location import Address, read
from bide.engines.rabbitmq.threaded import ThreadedRabbit

CAPABILITIES = Capabilities(
    accepted="confirmed by most replicas of a quorum queue",
    cancel=False,
    lookup=False,
    keys=False,
    idempotent=False,
    inspect=False,
    pause=False,
    priority=False,
    gates=False,
    traces=False,
    results=False,
    past=False,
    ordered=False,
    instants=False,
    tick=TICK,
    max_delay=MAX_DELAY,
    max_body=2**27,
)


class RabbitSource:
    capabilities = CAPABILITIES

    def __init__(self, address: Address, settings: Settings, names: QueueNames | None = None) -> None:
        """`names`: another ladder than the usual one, for tests."""
        self._address = address
        self._settings = settings
        self._names = names or QueueNames(address.namespace)
        self._holdings = holdings_at(address.place)
        self.shown: str = address.shown
        self.namespace: str = address.namespace

    def aio(self) -> AsyncRabbit:
        dead = self._settings.dead_for, self._settings.dead_max
        return AsyncRabbit(self._address, CAPABILITIES, self._names, self._holdings, *dead)

    def sync(self) -> ThreadedRabbit:
        return ThreadedRabbit(self.aio)

    def examine(self) -> list[Finding]:
        return doctor.examine(self._address, self._names)

    def mend(self) -> list[Finding]:
        """Makes again what is missing of a namespace that is in use."""
        return repair.mend(self._address, self._names)

    def removal(self) -> Removal:
        """The way to take the namespace away, with all that is in it."""
        return Removal(self._address, self._names)


def source(settings: Settings) -> RabbitSource:
    return RabbitSource(read(settings), settings)

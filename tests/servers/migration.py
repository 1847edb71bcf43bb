"""Moves a slot of a Redis Cluster from one master to another, step by step, so that a test may act in between."""

from collections.abc import Iterator, Sequence
from typing import Literal, Self

from tests.servers.group import Node

Stage = Literal["importing", "migrating", "moved", "taken", "given", "known"]
MILLISECONDS = 10_000  # for one MIGRATE


class Migration:
    """What `redis-cli --cluster reshard` does for one slot. Iterate, and act between the stages, or leave all at `until`:

        with cluster.migrate(slot, target, keys_at_once=1) as migration:
            migration.until("moved")    # the slot is half here, half there
            ...                         # for as long as you like

    Leaving the block does the rest. Stages: the target is `importing`, the source is `migrating`, some keys have `moved`
    (once for each MIGRATE, so not at all for an empty slot), the target has `taken` the slot, the source has `given` it,
    and all other masters have been told: it is `known`.
    """

    def __init__(self, slot: int, source: Node, target: Node, others: Sequence[Node], *, keys_at_once: int) -> None:
        self.slot, self.source, self.target = slot, source, target
        self._others = others
        self._keys_at_once = keys_at_once
        self._stages = self._steps()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def __iter__(self) -> Iterator[Stage]:
        return self._stages

    def until(self, stage: Stage) -> None:
        """Go on up to this stage, or up to its next time."""
        if stage not in self._stages:  # takes the stages before it
            raise AssertionError(f"slot {self.slot} never was {stage}")

    def finish(self) -> None:
        for _ in self._stages:
            pass

    def keys_left(self) -> int:
        """How many keys of the slot the source still has."""
        left: int = self.source.ask("CLUSTER", "COUNTKEYSINSLOT", self.slot)
        return left

    def _steps(self) -> Iterator[Stage]:
        source, target = self._id(self.source), self._id(self.target)
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", source)
        yield "importing"
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", target)
        yield "migrating"
        while keys := self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, self._keys_at_once):
            place = (self.target.address, self.target.port)
            self.source.ask("MIGRATE", *place, "", 0, MILLISECONDS, *self._password(), "KEYS", *keys)
            yield "moved"
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "NODE", target)  # first, so that the slot is never without a master
        yield "taken"
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "NODE", target)
        yield "given"
        for other in self._others:
            other.ask("CLUSTER", "SETSLOT", self.slot, "NODE", target)
        yield "known"

    def _password(self) -> list[str]:
        return ["AUTH", self.target.password] if self.target.password else []

    def _id(self, node: Node) -> str:
        id: bytes = node.ask("CLUSTER", "MYID")
        return id.decode()

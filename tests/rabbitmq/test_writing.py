"""What the driver writes in one turn of the event loop is sent at once, and nothing is left behind."""

import asyncio
from collections.abc import Callable

import pytest

from bide.engines.rabbitmq.aio.line import GatheringWriter


class _Writer:
    """Remembers what a StreamWriter is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def write_eof(self) -> None:
        self.told.append("eof")

    def close(self) -> None:
        self.told.append("close")

    async def drain(self) -> None:
        self.told.append("drain")


@pytest.fixture
def plain() -> _Writer:
    return _Writer()


async def test_what_is_written_in_one_turn_is_sent_at_once(plain: _Writer) -> None:
    writer = GatheringWriter(plain)  # type: ignore[arg-type]
    for part in (b"a", b"b", b"c"):
        writer.write(part)
    assert not plain.told
    await asyncio.sleep(0)
    assert plain.told == [b"abc"]
    writer.write(b"d")
    await asyncio.sleep(0)
    assert plain.told == [b"abc", b"d"]


async def test_drain_waits_for_what_was_written_before(plain: _Writer) -> None:
    writer = GatheringWriter(plain)  # type: ignore[arg-type]
    writer.write(b"a")
    await writer.drain()
    assert plain.told == [b"a", "drain"]
    await asyncio.sleep(0)
    assert plain.told == [b"a", "drain"]


@pytest.mark.parametrize(("end", "said"), [(GatheringWriter.close, "close"), (GatheringWriter.write_eof, "eof")])
async def test_what_was_written_is_sent_before_the_end(
    plain: _Writer, end: Callable[[GatheringWriter], None], said: str
) -> None:
    writer = GatheringWriter(plain)  # type: ignore[arg-type]
    writer.write(b"a")
    end(writer)
    assert plain.told == [b"a", said]
    await asyncio.sleep(0)
    assert plain.told == [b"a", said]

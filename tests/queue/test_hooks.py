"""Hooks see every call of every verb once, and can't break one."""

import asyncio
import enum
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide import BadOption, Call, Hook, Outgoing, Sent
from bide.engines import memory
from bide.engines.base import Settings
from bide.engines.guard.sync import Guard


class Noted(Hook):
    def __init__(self) -> None:
        self.calls: list[Call] = []

    def before(self, call: Call) -> None:
        call.notes["seen"] = True

    def after(self, call: Call) -> None:
        assert call.notes["seen"]
        self.calls.append(call)


async def use_every_verb(queue: Any) -> None:
    sent = await queue.send("t", {"secret": "hunter2"}, key="k")
    [delivery] = await queue.receive("t", "u", limit=5)
    await delivery.extend("1m")
    await delivery.ack()
    await queue.receive("t", wait="300ms")  # long enough to come to a wait on a busy machine
    await queue.cancel(sent)
    await queue.reschedule(sent, delay=1)
    await queue.get(sent)
    await queue.messages("t")
    await queue.stats("t")
    await queue.requeue("t", ["x"])
    await queue.purge("t", state="ready")
    await queue.pause("t")
    await queue.resume("t")
    await queue.close()


async def test_each_verb_is_told_once_with_its_outcome(make_queue: Callable[..., Any]) -> None:
    noted = Noted()
    await use_every_verb(make_queue(hooks=[noted]))

    assert {call.verb for call in noted.calls} == {
        "open", "put", "claim", "settle", "extend", "cancel", "reschedule", "tend", "wait", "get", "scan", "stats",
        "requeue", "purge", "pause", "close",
    }  # fmt: skip
    put = next(call for call in noted.calls if call.verb == "put")
    claim = next(call for call in noted.calls if call.verb == "claim")
    assert (put.topics, put.engine, put.error) == (["t"], "memory://", None)
    assert [each.key for each in put.asked] == ["k"]
    assert [each.attempt for each in claim.answer.messages] == [1]
    assert all(call.seconds >= 0 for call in noted.calls)


def test_without_hooks_the_guard_calls_the_engine_itself() -> None:
    engine = memory.source(Settings(url="memory://")).sync()
    assert Guard(engine, "memory://")._verbs is engine
    assert Guard(engine, "memory://", [Noted()])._verbs is not engine


async def test_what_the_heartbeat_renews_is_told_too(make_queue: Callable[..., Any]) -> None:
    class Renewals(Hook):
        def __init__(self) -> None:
            self.threads: list[str] = []
            self.twice = threading.Event()

        def after(self, call: Call) -> None:
            if call.verb == "extend":
                assert ([each.topic for each in call.asked], call.answer) == (["t"], [True])
                self.threads.append(threading.current_thread().name)
                if len(self.threads) == 2:
                    self.twice.set()

    renewals = Renewals()
    queue = make_queue(hooks=[renewals])
    await queue.send("t", 1)
    async for delivery in queue.listen("t", lease="300ms"):
        assert await asyncio.to_thread(renewals.twice.wait, 20)
        await delivery.ack()
        break
    await queue.close()
    assert set(renewals.threads) == {"bide-heartbeat"}


async def test_the_heartbeat_opens_nothing_before_there_is_something_to_renew(make_queue: Callable[..., Any]) -> None:
    noted = Noted()
    queue = make_queue(hooks=[noted])
    await queue.send_many("t", range(5))
    async for delivery in queue.listen("t"):
        await delivery.ack()
        if delivery.body == 4:
            break
    await queue.close()
    assert [call.verb for call in noted.calls if call.verb in ("open", "extend", "close")] == ["open", "close"]


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3), asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_a_hook_that_fails_is_told_and_the_call_goes_on(
    make_queue: Callable[..., Any], caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    class Broken(Hook):
        def before(self, call: Call) -> None:
            raise error

        def after(self, call: Call) -> None:
            raise error

    noted = Noted()
    queue = make_queue(hooks=[Broken(), noted])
    assert await queue.send("t", 1)
    assert "The hook Broken failed in before" in caplog.text
    assert [call.verb for call in noted.calls] == ["open", "put"]
    await queue.close()


async def test_a_ctrl_c_in_a_hook_goes_up(make_queue: Callable[..., Any]) -> None:
    class Interrupted(Hook):
        def before(self, call: Call) -> None:
            if call.verb == "stats":
                raise KeyboardInterrupt

    queue = make_queue(hooks=[Interrupted()])
    with pytest.raises(KeyboardInterrupt):
        await queue.stats()
    await queue.close()


async def test_an_engine_error_is_told_and_goes_up(make_queue: Callable[..., Any]) -> None:
    noted = Noted()
    queue = make_queue(hooks=[noted])
    with pytest.raises(ValueError, match="after"):
        await queue.messages("t", after="nonsense")
    assert type(noted.calls[-1].error).__name__ == "BadOption"
    await queue.close()


async def test_the_log_has_every_call_and_never_a_body(
    make_queue: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="bide"):
        await use_every_verb(make_queue())
    assert "put t asked=1" in caplog.text
    assert "hunter2" not in caplog.text


async def test_bide_is_silent_by_default(make_queue: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    await use_every_verb(make_queue())
    assert capfd.readouterr() == ("", "")


class Traced(Hook):
    """As the docs have it: each message of a put gets a header."""

    def before(self, call: Call) -> None:
        if call.verb == "put":
            for message in call.asked:
                message.headers["trace"] = message.topic


@pytest.mark.parametrize("url", ["memory://headers", "sqlite:///{}/headers.db"])
async def test_a_header_that_a_hook_adds_arrives_with_its_message_and_with_no_other(
    make_queue: Callable[..., Any], url: str, tmp_path: Path
) -> None:
    own = {"mine": "1"}
    url = url.format(tmp_path)
    async with make_queue(url, hooks=[Traced()]) as queue:
        await queue.send("a")
        await queue.send_many("b", [1, Outgoing(2, headers=own)])
        found = [delivery for topic in "ab" for delivery in await queue.receive(topic, limit=9)]
        assert [dict(each.headers) for each in found] == [{"trace": "a"}, {"trace": "b"}, {"mine": "1", "trace": "b"}]
    assert own == {"mine": "1"}
    async with make_queue(url) as queue:
        await queue.send("c")
        [delivery] = await queue.receive("c")
        assert dict(delivery.headers) == {}


class Name(enum.StrEnum):
    USER = "user"


class Named(Hook):
    """Adds a header to what goes to the topic `named`."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.errors: list[BaseException | None] = []

    def before(self, call: Call) -> None:
        if call.verb == "put":
            for message in call.asked:
                if message.topic == "named":
                    message.headers[Name.USER] = self.content

    def after(self, call: Call) -> None:
        if call.verb == "put":
            self.errors.append(call.error)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("redis", marks=pytest.mark.server),
        pytest.param("postgres", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://{tmp_path.name}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/hooks.db"
        case server:
            return str(request.getfixturevalue(f"{server}_url"))


@pytest.mark.parametrize("content", [7, b"x", None, "x" * 8_192, "\ud800"], ids=["number", "bytes", "none", "large", "half"])
async def test_a_header_of_a_hook_that_no_message_can_have_refuses_that_message_and_no_other(
    make_queue: Callable[..., Any], url: str, content: Any
) -> None:
    named = Named(content)
    async with make_queue(url, hooks=[named]) as queue:
        with pytest.raises(BadOption, match=r"A hook has added headers that can't be sent: mend its before\(\)\. The header"):
            await queue.send("named", 0)
        assert isinstance(named.errors[-1], BadOption)
        if asyncio.iscoroutinefunction(queue.send):  # together, so that the one that is refused is put once more
            both: Any = await asyncio.gather(queue.send("named", 1), queue.send("other", 1), return_exceptions=True)
            assert [isinstance(each, kind) for each, kind in zip(both, (BadOption, Sent), strict=True)] == [True, True]
        else:
            await queue.send("other", 1)
        assert [each.body for each in await queue.receive("named", "other", limit=9)] == [1]
        assert (await queue.stats("named")).pending == 0


async def test_headers_of_hooks_come_on_top_of_what_a_sender_may_give_and_are_plain_text(
    make_queue: Callable[..., Any], url: str
) -> None:
    class Text(str):
        pass

    async with make_queue(url, hooks=[Named(Text("7"))]) as queue:
        given = {"mine": "x" * 8_188}
        await queue.send("named", 0, headers=given)
        [delivery] = await queue.receive("named")
        assert dict(delivery.headers) == {**given, "user": "7"}
        assert {type(each) for each in (*delivery.headers, *delivery.headers.values())} == {str}

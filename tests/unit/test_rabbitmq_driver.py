"""What bide uses of its RabbitMQ driver beyond the driver's documentation: another version may have changed it."""

import inspect

import aiormq
from aiormq.abc import AbstractConnection
from aiormq.channel import Channel
from aiormq.connection import TransportFactory


def parameters(of: object) -> set[str]:
    return set(inspect.signature(of).parameters)  # type: ignore[arg-type]


def test_publishing_and_acknowledging_may_leave_the_writing_to_later() -> None:
    assert {"wait", "mandatory", "timeout"} <= parameters(Channel.basic_publish)
    assert "wait" in parameters(Channel.basic_ack)
    assert {"wait", "requeue"} <= parameters(Channel.basic_nack)


def test_a_consumer_that_is_ended_can_be_put_back() -> None:
    assert "nowait" in parameters(Channel.basic_cancel)
    assert "self.consumers.pop" in inspect.getsource(Channel.basic_cancel)
    assert "self.consumers.get" in inspect.getsource(Channel._on_deliver_frame)


def test_a_connection_tells_whether_the_broker_has_blocked_it() -> None:
    assert inspect.iscoroutinefunction(AbstractConnection.ready)


def test_frames_are_gathered_and_sockets_made_where_bide_does_so() -> None:
    assert isinstance(aiormq.Connection.FRAME_BUFFER_SIZE, int)
    assert {"url"} <= parameters(TransportFactory.create)
